"""Real builds with the machine's compilers. The precompiled header is shared, as objects of copies are."""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_tui import process
from cuda_tui.errors import InfrastructureError, UsageError
from cuda_tui.evaluation.build import vectorisation
from cuda_tui.evaluation.build.build import Builder, build
from cuda_tui.evaluation.build.plan import BuildOptions, make_plan
from cuda_tui.evaluation.build.target import runs_on
from cuda_tui.evaluation.build.warm import warm_header
from cuda_tui.evaluation.report import BuildReport
from cuda_tui.sandbox.access import environment
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

ENV = environment(os.environ, python=sys.executable)
SILU = """#include "cuda_tui.h"
using torch::stable::Tensor;
static Tensor silu(const Tensor& x) {
  CUDA_TUI_CHECK(x.is_contiguous(), "silu: x must be contiguous");
  Tensor y = torch::stable::empty_like(x);
  const float* in = cuda_tui::input<float>(x);
  float* out = cuda_tui::output<float>(y);
  const int64_t n = x.numel();
#pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] / (1.0f + std::exp(-in[i]));
  return y;
}
CUDA_TUI_OPS(m) { m.def("silu(Tensor x) -> Tensor"); }
CUDA_TUI_IMPL(CPU, m) { m.impl("silu", TORCH_BOX(&silu)); }
"""
SCALE_CU = """#include <cuda_runtime.h>
template <int N>
__global__ void scale_kernel(const float* x, float* y, float factor, long n) {
  __shared__ float tile[N];
  long i = blockIdx.x * (long)N + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) y[i] = tile[threadIdx.x] * factor;
}
extern "C" int scale_launch(const float* x, float* y, float factor, long n, void* stream) {
  if (n == 0) return 0;
  scale_kernel<256><<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, y, factor, n);
  return cudaGetLastError();
}
"""
SCALE_BINDING = """#include "cuda_tui.h"
using torch::stable::Tensor;
extern "C" int scale_launch(const float* x, float* y, float factor, long n, void* stream);
static Tensor scale(const Tensor& x, double factor) {
  Tensor y = torch::stable::empty_like(x);
  int code = scale_launch(cuda_tui::input<float>(x), cuda_tui::output<float>(y), static_cast<float>(factor),
                          x.numel(), cuda_tui::current_stream(x));
  CUDA_TUI_CHECK(code == 0, "scale: the launch failed with CUDA error ", code);
  return y;
}
CUDA_TUI_OPS(m) { m.def("scale(Tensor x, float factor) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""


@pytest.fixture(scope="session")
def build_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.fixture
def builder(build_dir: Path) -> Builder:
    return Builder(python=sys.executable, env=ENV, run=process.run, options=BuildOptions(build_dir=str(build_dir)))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "space", task=Task(name="x"), model_source=b"class Model: pass\n")


def built(workspace: Workspace, builder: Builder, say: Callable[[str], None] = lambda _: None) -> BuildReport:
    return build(workspace, builder=builder, on_progress=lambda line: say(line.text))


def python(script: str, *, cwd: Path, **env: str) -> str:
    """Runs in a process of its own, without cuda-tui on its path."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=cwd,
        env=ENV | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_operator_builds_loads_and_keeps_nan_and_infinity(workspace: Workspace, builder: Builder) -> None:
    workspace.write("kernels/silu.cpp", SILU)
    report = built(workspace, builder)
    assert report.succeeded
    assert report.library is not None
    assert hashlib.sha256((workspace.root / report.library).read_bytes()).hexdigest() == report.library_sha256
    script = """
import torch, cuda_extension
x = torch.randn(1003); x[0], x[1], x[2] = float("nan"), float("inf"), -100.0
torch.testing.assert_close(cuda_extension.silu(x), torch.nn.functional.silu(x), equal_nan=True)
try:
    cuda_extension.silu(torch.randn(4, 4).t())
except RuntimeError as error:
    print("contiguous" in str(error))
"""
    assert python(script, cwd=workspace.root, CUDA_TUI_LIBRARY=str(workspace.root / report.library)) == "True\n"


def test_workspace_builds_by_itself_without_the_product(workspace: Workspace) -> None:
    workspace.write("kernels/silu.cpp", SILU)
    workspace.write("model_new.py", "import cuda_extension\nf = cuda_extension.silu\n")
    script = "import sys, model_new, torch; print(model_new.f(torch.zeros(2)).tolist(), 'cuda_tui' in sys.modules)"
    assert python(script, cwd=workspace.root) == "[0.0, 0.0] False\n"


def test_error_is_on_top_and_the_last_good_library_stays(workspace: Workspace, builder: Builder) -> None:
    workspace.write("kernels/silu.cpp", SILU)
    good = built(workspace, builder)
    workspace.write("kernels/silu.cpp", SILU.replace("numel()", "nummel()"))
    report = built(workspace, builder)
    assert not report.succeeded
    assert report.library is None
    assert report.errors[0].place == "kernels/silu.cpp:8"
    assert "nummel" in report.errors[0].message
    assert good.library is not None
    assert (workspace.root / good.library).exists()
    assert report.log is not None
    assert "nummel" in (workspace.root / report.log).read_text()


def test_only_the_changed_source_is_compiled_and_going_back_compiles_nothing(
    workspace: Workspace, builder: Builder
) -> None:
    workspace.write("kernels/silu.cpp", SILU)
    workspace.write("kernels/helper.cpp", "int helper() { return 1; }\n")
    first = built(workspace, builder)
    workspace.write("kernels/helper.cpp", "int helper() { return 2; }\n")
    second = built(workspace, builder)
    assert second.compiled == ("kernels/helper.cpp",)
    assert second.library != first.library
    workspace.write("kernels/helper.cpp", "int helper() { return 1; }\n")
    third = built(workspace, builder)
    assert third.compiled == ()
    assert third.library == first.library


def test_changed_header_recompiles_the_source_that_includes_it(workspace: Workspace, builder: Builder) -> None:
    workspace.write("kernels/value.h", "#define VALUE 1\n")
    workspace.write("kernels/helper.cpp", '#include "value.h"\nint helper() { return VALUE; }\n')
    workspace.write("kernels/other.cpp", "int other() { return 1; }\n")
    built(workspace, builder)
    workspace.write("kernels/value.h", "#define VALUE 2\n")
    assert built(workspace, builder).compiled == ("kernels/helper.cpp",)


def test_copy_of_a_workspace_shares_its_objects(workspace: Workspace, builder: Builder, tmp_path: Path) -> None:
    workspace.write("kernels/shared.cpp", "int shared() { return 41; }\n")
    built(workspace, builder)
    workspace.snapshot_copy(tmp_path / "copy")
    report = built(Workspace(tmp_path / "copy", workspace.task), builder)
    assert report.cached == ("kernels/shared.cpp",)


def test_flags_outside_the_allow_list_are_an_error_of_the_source(workspace: Workspace, builder: Builder) -> None:
    workspace.write("kernels/a.cpp", "// cuda-tui: flags -ffast-math\nint a() { return 1; }\n")
    report = built(workspace, builder)
    assert not report.succeeded
    assert "-ffast-math" in report.errors[0].message
    workspace.write("kernels/a.cpp", "// cuda-tui: flags -fno-signed-zeros -funroll-loops\nint a() { return 1; }\n")
    assert built(workspace, builder).succeeded


def test_workspace_without_sources_says_what_to_add(workspace: Workspace, builder: Builder) -> None:
    report = built(workspace, builder)
    assert not report.succeeded
    assert "no sources" in report.errors[0].message


def test_bad_schema_is_a_python_error_and_not_a_crash(workspace: Workspace, builder: Builder) -> None:
    workspace.write("kernels/bad.cpp", '#include "cuda_tui.h"\nCUDA_TUI_OPS(m) { m.def("bad(Tensor x -> Tensor"); }\n')
    report = built(workspace, builder)
    assert report.library is not None
    script = """
try:
    import cuda_extension
except RuntimeError as error:
    print("registering the operators failed" in str(error))
"""
    assert python(script, cwd=workspace.root, CUDA_TUI_LIBRARY=str(workspace.root / report.library)) == "True\n"


def test_stale_marker_is_cleared_with_one_line(workspace: Workspace, builder: Builder, build_dir: Path) -> None:
    workspace.write("kernels/a.cpp", "int a() { return 1; }\n")
    (build_dir / "lock").touch()
    lines: list[str] = []
    assert built(workspace, builder, lines.append).succeeded
    assert len([line for line in lines if "stale build marker" in line]) == 1
    assert not (build_dir / "lock").exists()


def test_build_under_way_is_refused_with_its_pid(workspace: Workspace, builder: Builder, build_dir: Path) -> None:
    workspace.write("kernels/a.cpp", "int a() { return 1; }\n")
    with open(build_dir / "lock.os", "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        (build_dir / "lock").write_text("4711")
        with pytest.raises(UsageError, match="4711"):
            built(workspace, builder)
    (build_dir / "lock").unlink()


def test_loops_are_reported_as_vectorised(workspace: Workspace, builder: Builder) -> None:
    workspace.write("kernels/silu.cpp", SILU)
    assert any("silu.cpp:10: loop vectorized" in note for note in vectorisation.report(workspace, builder=builder))


def test_cuda_sources_of_a_cpu_task_are_left_out(workspace: Workspace, builder: Builder) -> None:
    workspace.write("kernels/silu.cpp", SILU)
    workspace.write("kernels/scale.cu", SCALE_CU)
    workspace.write("kernels/scale_binding.cpp", SCALE_BINDING)
    report = built(workspace, builder)
    assert report.succeeded
    assert set(report.compiled + report.cached) == {"kernels/silu.cpp"}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
def test_cuda_compiles_without_a_gpu_and_tells_its_resources(tmp_path: Path, builder: Builder) -> None:
    task = Task(name="scale", device="cuda", architectures=("sm_80", "sm_90"))
    workspace = Workspace.create(tmp_path / "space", task=task, model_source=b"class Model: pass\n")
    workspace.write("kernels/scale.cu", SCALE_CU)
    workspace.write("kernels/scale_binding.cpp", SCALE_BINDING)
    report = built(workspace, builder)
    assert report.succeeded, report.diagnostics
    assert report.target == "sm_80,sm_90"
    assert {item.architecture for item in report.resources} == {"sm_80", "sm_90"}
    assert all(item.static_shared_bytes == 1024 and item.registers > 0 for item in report.resources)
    workspace.write("kernels/scale.cu", SCALE_CU.replace("y[i] =", "y[j] ="))
    broken = built(workspace, builder)
    assert broken.cached == ("kernels/scale_binding.cpp",)
    assert broken.errors[0].place == "kernels/scale.cu:8"
    assert '"j" is undefined' in broken.errors[0].message


@pytest.fixture
def fake_smi(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """An environment in which nvidia-smi lists the GPUs given, as `uuid, capability` lines."""

    def environ(listed: str) -> dict[str, str]:
        program = tmp_path / "smi" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\n", encoding="ascii")
        program.chmod(0o755)
        return ENV | {"PATH": f"{program.parent}{os.pathsep}{ENV['PATH']}"}

    return environ


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
@pytest.mark.parametrize(
    ("device", "visible", "target"),
    [("cuda", None, "sm_90a"), ("cuda:1", None, "sm_80"), ("cuda", "1", "sm_80"), ("cuda", "GPU-b", "sm_80")],
)
def test_workspace_on_its_own_builds_for_the_gpu_that_its_device_means(
    tmp_path: Path, fake_smi: Callable[[str], dict[str, str]], device: str, visible: str | None, target: str
) -> None:
    workspace = Workspace.create(
        tmp_path / "space", task=Task(name="x", device=device), model_source=b"class Model: pass\n"
    )
    workspace.write("kernels/scale.cu", SCALE_CU)
    env = fake_smi("GPU-a, 9.0\nGPU-b, 8.0") | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    plan = make_plan(workspace.root, python=sys.executable, env=env, options=BuildOptions(), write=False)
    assert plan.target == target
    assert "-lineinfo" in plan.objects[0].command


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
def test_several_targets_make_one_fat_binary_with_line_tables(tmp_path: Path, builder: Builder) -> None:
    task = Task(name="x", device="cuda", architectures=("sm_80+PTX", "sm_90a"))
    workspace = Workspace.create(tmp_path / "space", task=task, model_source=b"class Model: pass\n")
    workspace.write("kernels/scale.cu", SCALE_CU)
    report = built(workspace, builder)
    assert report.succeeded, report.diagnostics
    assert report.target == "sm_80+PTX,sm_90a"
    assert runs_on(report.target, (9, 0)) == ""
    assert runs_on(report.target, (10, 0)) == ""  # by its PTX


def test_target_that_this_nvcc_cannot_build_for_stops_before_any_compile(tmp_path: Path, builder: Builder) -> None:
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    (tmp_path / "cuda" / "include").mkdir()
    (tmp_path / "cuda" / "include" / "cuda_runtime.h").touch()
    text = '#!/bin/sh\n[ "$1" = --list-gpu-code ] && echo sm_90 && exit\necho "release 13.0, V13.0.1"\n'
    nvcc.write_text(text, encoding="ascii")
    nvcc.chmod(0o755)
    task = Task(name="x", device="cuda", architectures=("sm_100a",))
    workspace = Workspace.create(tmp_path / "space", task=task, model_source=b"class Model: pass\n")
    workspace.write("kernels/scale.cu", SCALE_CU)
    options = BuildOptions(build_dir=builder.options.build_dir, nvcc=str(nvcc), cuda_home=str(tmp_path / "cuda"))
    with pytest.raises(UsageError, match=r"knows no sm_100a; the newest target that it knows is sm_90\."):
        built(workspace, Builder(python=sys.executable, env=ENV, run=process.run, options=options))


def test_library_of_another_torch_is_built_again_and_that_is_said(workspace: Workspace, tmp_path: Path) -> None:
    """Another torch is this one under another version, put first on the path."""
    here = Path(importlib.util.find_spec("torch").origin or "").parent  # type: ignore[union-attr]  # it is installed
    other = tmp_path / "other" / "torch"
    other.mkdir(parents=True)
    for entry in here.iterdir():
        if entry.name != "version.py":
            (other / entry.name).symlink_to(entry)
    text = (here / "version.py").read_text(encoding="utf-8")
    version = importlib.metadata.version("torch")
    (other / "version.py").write_text(re.sub(r"(?m)^__version__ = .*$", "__version__ = '2.99.0+cpu'", text))
    workspace.write("kernels/plain.cpp", "int plain() { return 7; }\n")
    lines: list[str] = []
    before = built(workspace, Builder(python=sys.executable, env=ENV, run=process.run), lines.append)
    assert not any("rebuilt" in line for line in lines)
    env = ENV | {"PYTHONPATH": str(other.parent)}
    after = built(workspace, Builder(python=sys.executable, env=env, run=process.run), lines.append)
    assert f"note: rebuilt: torch {version} to 2.99.0+cpu" in lines
    assert after.succeeded
    assert after.library != before.library


def test_header_warmed_for_the_machine_is_used_by_a_new_workspace(tmp_path: Path) -> None:
    def lines_of_first_build(name: str) -> list[str]:
        workspace = Workspace.create(tmp_path / name, task=Task(name=name), model_source=b"class Model: pass\n")
        workspace.write("kernels/silu.cpp", SILU)
        lines: list[str] = []
        builder = Builder(python=sys.executable, env=ENV, run=process.run, cache_folder=tmp_path / "cache")
        assert built(workspace, builder, lines.append).succeeded
        return lines

    root, cache = tmp_path / "warm", tmp_path / "cache"
    root.mkdir()
    assert warm_header(root, python=sys.executable, env=ENV, cache_folder=cache, run=process.run)
    lines = lines_of_first_build("first")
    assert any("compile kernels/silu.cpp" in line for line in lines)
    assert not any("precompile" in line for line in lines)


def test_pybind_module_is_loaded_under_the_contracts_name(workspace: Workspace, builder: Builder) -> None:
    source = """#include <pybind11/pybind11.h>
int twice(int x) { return 2 * x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""
    workspace.write("binding.cpp", source)
    lines: list[str] = []
    report = built(workspace, builder, lines.append)
    assert report.library is not None, report.diagnostics
    assert any("full torch headers" in line for line in lines)
    script = "import cuda_extension; print(cuda_extension.twice(21))"
    assert python(script, cwd=workspace.root, CUDA_TUI_LIBRARY=str(workspace.root / report.library)) == "42\n"


def test_object_planted_in_the_workspace_is_not_linked(workspace: Workspace, builder: Builder, build_dir: Path) -> None:
    """The agent's shell can write below .cuda-tui; builds that count keep their objects elsewhere."""
    workspace.write("kernels/planted.cpp", "int planted() { return 7; }\n")
    built(workspace, builder)
    (honest,) = (build_dir / "objects").glob("planted-*.o")
    shutil.rmtree(build_dir / "libraries")
    planted = workspace.root / ".cuda-tui" / "build" / "objects"
    planted.mkdir(parents=True)
    (planted / honest.name).write_bytes(b"not what was compiled")
    assert built(workspace, builder).succeeded


def with_compiler(builder: Builder, script: Path, text: str) -> Builder:
    script.write_text(text, encoding="ascii")
    script.chmod(0o755)
    options = BuildOptions(build_dir=builder.options.build_dir, cxx=str(script))
    return Builder(python=builder.python, env=builder.env, run=builder.run, options=options)


def test_compiler_killed_for_memory_is_no_error_of_the_code(
    workspace: Workspace, builder: Builder, tmp_path: Path
) -> None:
    workspace.write("kernels/large.cpp", "int large() { return 1; }\n")
    text = "#!/bin/sh\necho 'g++: fatal error: Killed signal terminated program cc1plus'\nexit 1\n"
    lines: list[str] = []
    with pytest.raises(InfrastructureError, match="too little memory"):
        built(workspace, with_compiler(builder, tmp_path / "g++", text), lines.append)
    assert "a compiler was killed for memory with 1 at once" in lines


def test_build_after_a_killed_build_starts_at_once_and_says_so(
    workspace: Workspace, builder: Builder, tmp_path: Path, build_dir: Path
) -> None:
    workspace.write("kernels/slow.cpp", "int slow() { return 1; }\n")
    started = tmp_path / "started"
    os.mkfifo(started)
    stub = tmp_path / "g++"
    stub.write_text(f"#!/bin/sh\necho now >{started}\nexec sleep 60\n", encoding="ascii")
    stub.chmod(0o755)
    script = f"""
import os, sys
from pathlib import Path
from cuda_tui import process
from cuda_tui.evaluation.build.build import Builder, build
from cuda_tui.evaluation.build.plan import BuildOptions
from cuda_tui.workspace.workspace import Workspace
options = BuildOptions(build_dir={str(build_dir)!r}, cxx={str(stub)!r})
builder = Builder(python=sys.executable, env=dict(os.environ), run=process.run, options=options)
build(Workspace.open(Path({str(workspace.root)!r})), builder=builder, on_progress=lambda line: None)
"""
    holder = subprocess.Popen([sys.executable, "-c", script])
    started.read_text()  # returns when the compiler runs
    orphans = process.descendants(holder.pid)
    holder.kill()
    holder.wait()
    try:
        lines: list[str] = []
        assert built(workspace, builder, lines.append).succeeded
        assert [line for line in lines if "stale" in line] == [f"cleared the stale build marker of pid {holder.pid}"]
    finally:
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
