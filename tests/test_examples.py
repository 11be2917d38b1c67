"""The examples are usable references: seeded, deterministic, sensitive to all of their state, and quick on one core."""

import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = (
    "conv_bn_silu_residual",
    "layernorm_gelu_mlp",
    "multi_term_loss",
    "rmsnorm_swiglu",
    "rope_attention_scores",
    "softmax_cross_entropy",
)


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """One example's module, with warnings of torch's own import (NumPy is optional) left aside."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = EXAMPLES / request.param / "model.py"
        spec = importlib.util.spec_from_file_location(f"example_{request.param}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def build(module: ModuleType, seed: int) -> "torch.nn.Module":
    import torch

    torch.manual_seed(seed)
    model: torch.nn.Module = module.Model(*module.get_init_inputs())
    return model.eval()


def draw(module: ModuleType, seed: int) -> "list[torch.Tensor]":
    import torch

    torch.manual_seed(seed)
    inputs: list[torch.Tensor] = module.get_inputs()
    return inputs


def call(model: "torch.nn.Module", inputs: "list[torch.Tensor]") -> "tuple[torch.Tensor, ...]":
    import torch

    with torch.no_grad():
        output = model(*inputs)
    return output if isinstance(output, tuple) else (output,)


def same(left: "tuple[torch.Tensor, ...]", right: "tuple[torch.Tensor, ...]") -> bool:
    import torch

    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_every_example_folder_is_listed_here() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("*/model.py")}
    assert folders == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_readme_says_what_why_how_and_has_a_place_for_results(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    for part in ("**What it is.**", "**Why it is slow.**", "**What a good answer does.**", "**Sizes.**", "## Results"):
        assert part in text
    assert f"cuda-tui optimize examples/{name}/model.py --device cpu" in text


@pytest.mark.slow
def test_same_seed_gives_the_same_output_and_another_seed_another(example: ModuleType) -> None:
    model = build(example, 0)
    first, again, other = (call(model, draw(example, seed)) for seed in (1, 1, 2))
    assert same(first, again)
    for one, two in zip(first, other, strict=True):
        assert not bool((one == two).all())


@pytest.mark.slow
def test_output_is_finite_and_agrees_with_float64(example: ModuleType) -> None:
    model, inputs = build(example, 0), draw(example, 1)
    single = call(model, inputs)
    double = call(model.double(), [item.double() if item.is_floating_point() else item for item in inputs])
    for one, two in zip(single, double, strict=True):
        assert bool(one.isfinite().all())
        assert str(two.dtype) == "torch.float64"
        assert float((one - two).norm() / two.norm()) < 1e-5


@pytest.mark.slow
def test_every_parameter_and_buffer_changes_the_output(example: ModuleType) -> None:
    model, inputs = build(example, 0), draw(example, 1)
    before = call(model, inputs)
    for name, value in model.state_dict().items():
        if not value.is_floating_point():
            continue
        kept = value.clone()
        value.mul_(1.5).add_(0.25)
        assert not same(before, call(model, inputs)), f"{name} is not used"
        value.copy_(kept)


@pytest.mark.slow
def test_gpu_sizes_run_on_the_meta_device(example: ModuleType) -> None:
    import torch

    with torch.device("meta"):
        model = example.Model(*example.get_init_inputs_gpu()).eval()
        inputs = example.get_inputs_gpu()
        outputs = call(model, inputs)
    assert sum(item.numel() for item in inputs) > sum(item.numel() for item in draw(example, 0))
    assert all(item.device.type == "meta" for item in outputs)
