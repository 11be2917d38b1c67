"""The static look flags what deserves a second one, and leaves honest code and comments alone."""

from pathlib import Path

import pytest

from cuda_tui.evaluation.policy import scan, unguarded


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("from model import Model\n", "REFERENCE_USED"),
        ("import model\n", "REFERENCE_USED"),
        ("try:\n    x = 1\nexcept Exception:\n    def f():\n        return 2\n", "FALLBACK"),
        ("import threading\n", "IMPORT"),
        ("import ctypes, gc\n", "IMPORT"),
        ("import torch\nf = torch.compile(g)\n", "CALL"),
        ("exec('x = 1')\n", "CALL"),
        ("import sys\nsys._getframe(1)\n", "CALL"),
        ("import torch\ntorch.allclose = lambda *a: True\n", "PATCH"),
        ("import time\ntime.perf_counter = None\n", "PATCH"),
        ("def f(:\n", "SYNTAX"),
    ],
)
def test_code_that_deserves_a_look_is_flagged(tmp_path: Path, source: str, code: str) -> None:
    (tmp_path / "model_new.py").write_text(source)
    flags = scan(tmp_path)
    assert code in {flag.code for flag in flags}
    assert all(flag.file == "model_new.py" and flag.line for flag in flags)


@pytest.mark.parametrize(
    "source",
    [
        "# torch.compile, exec and from model import Model are not used\n",
        '"""Never calls torch.compile(x) or eval(y)."""\n',
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        self.out = x\n        return x\n",
        "model.eval()\n",
        "import re\nre.compile('x')\n",
        "from .model_parts import f\n",
        "import cuda_extension\n",
        "try:\n    import fast\nexcept ImportError:\n    fast = None\n",
    ],
)
def test_honest_code_is_not_flagged(tmp_path: Path, source: str) -> None:
    (tmp_path / "model_new.py").write_text(source)
    assert scan(tmp_path) == ()


def test_library_operator_in_a_source_is_flagged_with_its_line_and_not_in_a_comment(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    text = "// at::matmul(a, b)\n/* at::mm\n   at::bmm */\nauto y = at::matmul(a, b);\n"
    (tmp_path / "kernels" / "a.cpp").write_text(text)
    (flag,) = scan(tmp_path)
    assert (flag.code, flag.file, flag.line) == ("LIBRARY", "kernels/a.cpp", 4)


def test_protected_file_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "cuda_extension.py").write_text("import ctypes\n")
    assert scan(tmp_path, protected=["cuda_extension.py"]) == ()
    assert scan(tmp_path)


OPERATOR = """
static Tensor scale(const Tensor& x) {
  GUARD
  return x;
}
CUDA_TUI_IMPL(CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""


def test_operator_that_does_not_select_its_device_is_flagged_where_only_one_gpu_is(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "scale_binding.cpp").write_text(OPERATOR.replace("GUARD", "// const DeviceGuard guard(0);"))
    (kernels / "pure.cpp").write_text('CUDA_TUI_IMPL(CPU, m) { m.impl("scale", TORCH_BOX(&scale)); }')
    flags = unguarded(tmp_path, gpus=1)
    assert [(flag.code, flag.file, flag.line) for flag in flags] == [("GUARD", "kernels/scale_binding.cpp", 6)]
    assert flags[0].message == "not exercised: one GPU; no device guard found in kernels/scale_binding.cpp"
    assert unguarded(tmp_path, gpus=2) == ()
    guard = "const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());"
    (kernels / "scale_binding.cpp").write_text(OPERATOR.replace("GUARD", guard))
    assert unguarded(tmp_path, gpus=1) == ()
