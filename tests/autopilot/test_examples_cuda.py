"""The CUDA that the autopilot writes for the examples: it compiles for two architectures and is right on a GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_tui.autopilot.design import Candidate, Design, TaskFacts
from cuda_tui.evaluation.worker.trace import trace
from tests.autopilot.tracing import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/model.py"))
NVCC = shutil.which("nvcc")
GPU = torch.cuda.is_available()
SHORT = (
    ("rmsnorm_swiglu", "bfloat16"), ("layernorm_gelu_mlp", "float16"), ("rope_attention_scores", "bfloat16"),
    ("softmax_cross_entropy", "bfloat16"),
)  # fmt: skip

# Runs in a process of its own, with the workspace as its folder and nothing of cuda-tui on its path.
ON_THE_GPU = """
import copy, json, sys, torch
import model, model_new
torch.manual_seed(0)
dtype = getattr(torch, sys.argv[1])
reference = model.Model(*model.get_init_inputs()).eval().to(dtype)
candidate = model_new.ModelNew(*model.get_init_inputs()).eval().to(dtype)
candidate.load_state_dict(reference.state_dict())
inputs = [x.to(dtype) if x.is_floating_point() else x for x in model.get_inputs()]
exact = copy.deepcopy(reference).double()(*[x.double() if x.is_floating_point() else x for x in inputs])
reference, candidate = reference.cuda(), candidate.cuda()
inputs = [x.cuda() for x in inputs]

def leaves(value):
    return [value] if isinstance(value, torch.Tensor) else [leaf for item in value for leaf in leaves(item)]

def error(found):
    pairs = zip(leaves(found), leaves(exact))
    return max(float((a.double().cpu() - b).norm() / b.double().norm().clamp_min(1e-30)) for a, b in pairs)

def time_us(call, repeats=50):
    for _ in range(5): call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(); start.record()
    for _ in range(repeats): call()
    end.record(); torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / repeats

with torch.no_grad():
    print(json.dumps({
        "eager_error": error(reference(*inputs)), "candidate_error": error(candidate(*inputs)),
        "eager_us": time_us(lambda: reference(*inputs)), "candidate_us": time_us(lambda: candidate(*inputs)),
        "device": torch.cuda.get_device_name(),
    }))
"""


def write_workspace(example: str, folder: Path, dtype: str = "float32") -> list[str]:
    """A workspace with the autopilot's first CUDA candidate; returns the names of its sources."""
    source = (ROOT / "examples" / example / "model.py").read_text()
    names: dict[str, object] = {"__name__": "model"}
    path = folder / "model.py"
    shutil.copytree(ROOT / "workspace_template", folder, dirs_exist_ok=True)
    path.write_text(source)
    (folder / "task.toml").write_text('device = "cuda"\n')
    exec(compile(source, str(path), "exec"), names)
    kind = getattr(torch, dtype)
    model = names["Model"](*names["get_init_inputs"]()).eval().to(kind)  # type: ignore[operator]
    inputs = [x.to(kind) if x.is_floating_point() else x for x in names["get_inputs"]()]  # type: ignore[operator]
    traced = trace(model, tuple(inputs), {})
    design = Design.of(traced, TaskFacts(device="cuda"), source)
    files = design.write(Candidate(groups=design.promising)).files
    for name, text in files.items():
        (folder / name).write_text(text)
    return sorted(files)


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc on PATH")
@pytest.mark.parametrize("example", EXAMPLES)
def test_emitted_cuda_compiles_for_sm_80_and_sm_90(example: str, tmp_path: Path) -> None:
    kernels = [name for name in write_workspace(example, tmp_path) if name.endswith(".cu")]
    assert kernels, "the autopilot found nothing to fuse"
    assert NVCC is not None
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ("80", "90")]
    for name in kernels:
        command = [
            NVCC,
            "--threads=2",
            "-O1",
            "-std=c++17",
            *targets,
            "-Ikernels",
            "-Werror=all-warnings",
            "-c",
            name,
            "-o",
            "op.o",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not GPU, reason="no CUDA device")
@pytest.mark.parametrize(("example", "dtype"), [*((name, "float32") for name in EXAMPLES), *SHORT])
def test_emitted_cuda_is_right_on_the_gpu(
    example: str, dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_workspace(example, tmp_path, dtype)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ON_THE_GPU, dtype],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        ratio = found["eager_us"] / found["candidate_us"]
        row = (f"{found['eager_us']:.1f}", f"{found['candidate_us']:.1f}", f"{ratio:.2f}")
        errors = (f"{found['eager_error']:.1e}", f"{found['candidate_error']:.1e}")
        sys.stdout.write(f"\n{example:<24}{dtype:<10}" + "".join(f"{text:>10}" for text in (*row, *errors)) + "\n")
    assert found["candidate_error"] <= max(8 * found["eager_error"], 5e-7)
