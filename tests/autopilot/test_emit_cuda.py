"""Emitted CUDA compiles for both architectures. What it computes is checked where there is a GPU."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cuda_tui.autopilot.emit_cpp import Kernel
from cuda_tui.autopilot.emit_cuda import emit_cuda, support
from cuda_tui.autopilot.names import variables
from tests.autopilot.cases import Case
from tests.autopilot.cuda_cases import FORMS, cuda_cases
from tests.autopilot.tracing import fused, torch

NVCC = shutil.which("nvcc")
TEMPLATE = Path(__file__).parents[2] / "workspace_template"
SHAPES = ("pointwise", "softmax_over_channels", "log_softmax", "rotary", "group_norm", "cross_entropy", "embedding")
EVEN: dict[str, Case] = {  # sizes that allow vector loads
    "even_rows": (lambda x, w: (x * w).softmax(-1), (torch.randn(8, 64), torch.randn(64))),
    "even_chain": (lambda x, w: (x * 2 + w).exp(), (torch.randn(8, 64), torch.randn(64))),
    "even_half": (lambda x: (x * 2).softmax(-1), (torch.randn(8, 64).bfloat16(),)),
}


FORCED = (("wide_softmax", "walked"), ("bf16_longest_norm", "cluster"), ("wide_columns", "rules"),
          ("long_row", "rules"), ("held_channels", "rules"))  # fmt: skip


def emitted(name: str, form: str = "rules") -> Kernel:
    function, tensors = {**cuda_cases(), **EVEN}[name]
    graph, fusion = fused(function, *tensors, device="cuda")
    return emit_cuda(fusion.groups[0].plan, name="op", variables=variables(graph), about=[name], tuning=FORMS[form])


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc on PATH")
@pytest.mark.parametrize(("name", "form"), [*((name, "rules") for name in (*SHAPES, *EVEN)), *FORCED])
def test_kernel_compiles_for_sm_80_and_sm_90(name: str, form: str, tmp_path: Path) -> None:
    files = emitted(name, form).files
    for path, text in {**files, **support(files)}.items():
        (tmp_path / Path(path).name).write_text(text)
    assert NVCC is not None
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ("80", "90")]
    command = [NVCC, "--threads=2", "-O1", "-std=c++17", *targets, "-Werror=all-warnings", "-c", "op.cu", "-o", "op.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_binding_compiles_against_the_stable_abi(tmp_path: Path) -> None:
    binding = emitted("softmax_over_channels").files["kernels/op_binding.cpp"]
    (tmp_path / "op_binding.cpp").write_text(binding)
    include = Path(torch.__file__).parent / "include"
    flags = ["-std=c++20", "-fsyntax-only", "-DUSE_CUDA", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
    command = ["g++", *flags, f"-I{TEMPLATE}/kernels", f"-isystem{include}", "op_binding.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_vector_path_is_taken_only_where_pointers_are_aligned() -> None:
    function, tensors = lambda x: (x * 2).exp(), (torch.randn(8, 64),)
    graph, fusion = fused(function, *tensors, device="cuda")
    text = emit_cuda(fusion.groups[0].plan, name="op", variables=variables(graph), about=[]).files["kernels/op.cu"]
    assert "const bool wide = dev::aligned<4>(" in text
    assert "if (wide) op_kernel<true><<<" in text
    assert "if (!wide) op_kernel<false><<<" in text


@pytest.mark.slow
def test_half_precision_is_computed_in_float() -> None:
    graph, fusion = fused(lambda x: x.softmax(-1), torch.randn(8, 64).bfloat16(), device="cuda")
    text = emit_cuda(fusion.groups[0].plan, name="op", variables=variables(graph), about=[]).files["kernels/op.cu"]
    assert "__nv_bfloat16" in text
    assert "float part" in text
    assert "static_cast<__nv_bfloat16>(" in text


@pytest.mark.slow
def test_results_in_the_memory_of_an_argument_are_not_returned() -> None:
    graph, fusion = fused(lambda x: ((y := x.exp()), y.sum(-1)), torch.randn(8, 64), device="cuda")
    plan = fusion.groups[0].plan
    source, first = next(iter(plan.inputs)), plan.results[0].name
    kernel = emit_cuda(plan, name="op", variables=variables(graph), about=[], reuses={first: source})
    binding = kernel.files["kernels/op_binding.cpp"]
    assert f'm.def("op(Tensor(a!) {variables(graph)[source]}) -> Tensor");' in binding
    assert "Tensor run(" in binding
    assert kernel.returned == (plan.results[1].name,)
