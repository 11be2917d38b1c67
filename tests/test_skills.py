"""Skills follow the open convention, and every block of code in them compiles."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.skills.extract import BINDINGS, ROOT, SKILLS, TEMPLATE, VARIANTS, blocks, cuda_files, write_workspace

HEADERS = TEMPLATE / "kernels"
# The workspace's own flags for the CPU; warnings count here, so that a reader's first build is silent.
CXX = ["-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def write(files: dict[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def torch_includes() -> list[str]:
    include = Path(sysconfig.get_paths()["purelib"]) / "torch" / "include"
    assert include.is_dir(), "torch is installed with its headers"
    return ["-isystem", str(include), "-DTORCH_TARGET_VERSION=0x020a000000000000"]


def succeed(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cuda_home() -> Path | None:
    """The toolkit's folder: beside nvcc itself, or where a wrapper of that name points."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    answer = subprocess.run([nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True, check=False)
    top = re.search(r"^#\$ TOP=(.+)$", answer.stderr, re.MULTILINE)
    assert top is not None, answer.stderr
    return Path(top[1].strip())


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_front_matter_names_the_folder_and_says_when_to_read_it(skill: Path) -> None:
    found = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", skill.read_text())
    assert found is not None
    assert found[1] == skill.parent.name
    assert "Read " in found[2]
    assert ": " not in found[2], "YAML would read a mapping"
    assert len(found[2]) < 1024


def test_the_skills_that_others_name_are_there() -> None:
    names = {skill.parent.name for skill in SKILLS}
    assert names >= {"workspace-contract", "cpu-kernels", "cuda-optimization", "profiling"}
    for skill in SKILLS:
        named = set(re.findall(r"skills? `([a-z-]+)`", skill.read_text()))
        assert named <= names, f"{skill.parent.name} sends its reader to {', '.join(sorted(named - names))}"


@pytest.mark.slow
def test_variants_and_bindings_of_the_gpu_tests_compile(tmp_path: Path) -> None:
    home = cuda_home()
    if home is None:
        pytest.skip("no nvcc")
    write_workspace(tmp_path / "workspace", variants=True)
    kernels = tmp_path / "workspace" / "kernels"
    command = ["nvcc", "-O1", "-std=c++17", "-Werror=all-warnings", "-arch=sm_90"]
    succeed([*command, "-c", "variants.cu", "-o", "out.o"], kernels)
    includes = [*torch_includes(), "-DUSE_CUDA", "-isystem", str(home / "include")]
    for path in (*BINDINGS.iterdir(), *VARIANTS.glob("*.cpp")):
        succeed(["g++", "-std=c++20", *WARNINGS, "-fsyntax-only", *includes, path.name], kernels)


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_every_code_fence_names_a_language_that_is_checked(skill: Path) -> None:
    opened = re.findall(r"^```(\w*)$", skill.read_text(), re.MULTILINE)[::2]
    assert set(opened) <= {"cpp", "cuda", "python", "text"}


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_python_blocks_compile(skill: Path) -> None:
    for name, text in blocks(skill, "python").items():
        compile(text, f"{skill.parent.name}/{name}", "exec")


def test_roofline_example_of_the_profiling_skill_is_right() -> None:
    (text,) = [text for text in blocks(ROOT / "skills/profiling/SKILL.md", "python").values() if "bound_us" in text]
    exec(compile(text, "roofline", "exec"), {})  # asserts its own arithmetic


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_cpp_blocks_compile_without_warnings(skill: Path, tmp_path: Path) -> None:
    files = blocks(skill, "cpp")
    write(cuda_files(), tmp_path)  # bindings of one skill include the header of another
    write(files, tmp_path)
    home = cuda_home()
    for name in files:
        extra: list[str] = []
        if "cuda_runtime.h" in files[name] or "binding.h" in files[name]:
            if home is None:
                continue  # such a binding is checked on machines with the toolkit; the CUDA test below counts the skip
            extra = ["-DUSE_CUDA", "-isystem", str(home / "include")]
        (tmp_path / "unit.cpp").write_text(f'#include "{name}"\n')
        includes = [f"-I{tmp_path}", f"-I{HEADERS}", *torch_includes()]
        succeed(["g++", *CXX, *WARNINGS, "-fsyntax-only", *includes, *extra, "unit.cpp"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_cuda_blocks_compile_for_two_architectures(skill: Path, tmp_path: Path) -> None:
    files = blocks(skill, "cuda")
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    write(cuda_files(), tmp_path)
    write(files, tmp_path)
    codes = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a"]
    flags = ["-O3", "-std=c++17", "--expt-relaxed-constexpr", "-Werror=all-warnings"]  # the workspace's, and warnings
    for name in files:
        if name.endswith(".cu"):
            succeed(["nvcc", "--threads=2", *flags, *codes, "-c", name, "-o", "out.o"], tmp_path)


CHECK_MATH = """
#include "vector_math.h"
#include <cstdio>
#include <cstring>
#include <limits>
static double ulps(float got, double want) {
  const float near = static_cast<float>(want);
  if (std::isnan(want)) return std::isnan(got) ? 0.0 : 1e30;
  if (std::isinf(near)) return got == near ? 0.0 : 1e30;
  return std::fabs(got - want) / (std::nextafter(std::fabs(near), INFINITY) - std::fabs(near));
}
int main() {
  double exp_worst = 0.0, tanh_worst = 0.0;
  for (uint64_t bits = 0; bits <= 0xffffffffull; bits += 1009) {
    const auto word = static_cast<uint32_t>(bits);
    float x;
    std::memcpy(&x, &word, 4);
    exp_worst = std::fmax(exp_worst, ulps(fast_exp(x), std::exp(static_cast<double>(x))));
    tanh_worst = std::fmax(tanh_worst, ulps(fast_tanh(x), std::tanh(static_cast<double>(x))));
  }
  const float inf = std::numeric_limits<float>::infinity();
  const bool edges = fast_silu(inf) == inf && std::isnan(fast_silu(-inf)) && fast_gelu_tanh(inf) == inf &&
                     std::isnan(fast_gelu_tanh(-inf)) && fast_sigmoid(-inf) == 0.0f && fast_sigmoid(inf) == 1.0f;
  std::printf("%g %g %d\\n", exp_worst, tanh_worst, edges);
}
"""


@pytest.mark.slow
def test_vector_math_of_the_cpu_skill_is_as_accurate_as_it_says(tmp_path: Path) -> None:
    write(blocks(ROOT / "skills/cpu-kernels/SKILL.md", "cpp"), tmp_path)
    (tmp_path / "check.cpp").write_text(CHECK_MATH)
    succeed(["g++", *CXX, "check.cpp", "-o", "check"], tmp_path)
    exp_worst, tanh_worst, edges = succeed(["./check"], tmp_path).split()
    assert float(exp_worst) < 1.15
    assert float(tanh_worst) < 1.45
    assert edges == "1"


CHECK_KERNELS = """
import warnings
warnings.simplefilter("ignore")
import torch
import cuda_extension as ours

def close(actual, expected):
    return float((actual.double() - expected).norm() / expected.norm()) < 5e-7

scores, mask = torch.randn(2, 3, 5, 37), torch.rand(2, 1, 5, 37) < 0.6
scores[0, 1, 2, 3], mask[1, 0, 0] = float("nan"), False
expected = torch.softmax((scores.double() * 0.3).masked_fill(~mask, torch.finfo(torch.float32).min), -1)
actual = ours.masked_softmax(scores, mask, 0.3)
use = ~expected.isnan()
assert torch.equal(actual.isnan(), expected.isnan())
assert close(actual[use], expected[use])
gate, up = torch.randn(33, 65).t(), torch.randn(33, 65).t()
assert close(ours.silu_mul(gate, up), torch.nn.functional.silu(gate.double()) * up.double())
x, weight = torch.randn(7, 101), torch.randn(101)
wide = x.double()
assert close(ours.rms_norm(x, weight, 1e-6), weight.double() * wide * torch.rsqrt(wide.pow(2).mean(-1, True) + 1e-6))
x, a, b = torch.randn(2, 5, 3, 7), torch.randn(5), torch.randn(5)
assert close(ours.scale_shift(x, a, b), x.double() * a.double().view(1, -1, 1, 1) + b.double().view(1, -1, 1, 1))
assert ours.scale_shift(torch.randn(0, 5, 2), a, b).shape == (0, 5, 2)
try:
    ours.rms_norm(x.double(), weight, 1e-6)
except RuntimeError as error:
    assert "must be float32" in str(error)
else:
    raise AssertionError("a wrong dtype was accepted")
"""


@pytest.mark.slow
def test_cpu_kernels_of_the_skills_compute_what_pytorch_computes(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "workspace_template", tmp_path / "workspace", ignore=shutil.ignore_patterns(".cuda-tui"))
    workspace = tmp_path / "workspace"
    files = blocks(ROOT / "skills/cpu-kernels/SKILL.md", "cpp")
    files |= blocks(ROOT / "skills/workspace-contract/SKILL.md", "cpp")
    del files["scale_shift_binding.cpp"]  # the CUDA form of an operator that is there already
    write(files, workspace / "kernels")
    (workspace / "check.py").write_text(CHECK_KERNELS)
    succeed([sys.executable, "check.py"], workspace)
