"""What happens where a tool is missing, forbidden, silent or endless: a plain sentence, once, and another profile."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_tui.evaluation.candidate import Rejected
from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.profile import fault, programs
from cuda_tui.evaluation.profile.ncu import Ncu
from cuda_tui.evaluation.profile.rows import SILENT
from cuda_tui.evaluation.profile.sanitizer import Sanitizer
from cuda_tui.evaluation.profile.sass import disassemble
from cuda_tui.evaluation.profile.tools import Building, ProfileTools
from cuda_tui.evaluation.report import Code, KernelRow, Profile
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

from .conftest import MODEL, Bench
from .test_ncu_parse import page
from .test_rows import BUILD, SILU
from .test_sanitizer_parse import MEMCHECK
from .test_sass import TEXT as SASS

pytestmark = pytest.mark.slow

STUBS = {
    "forbidden": 'echo "==ERROR== ERR_NVGPUCTRPERM" >&2; exit 1',
    "nothing": 'echo "==WARNING== No kernels were profiled."; exit 0',
    "other": 'echo "==ERROR== some message nobody has seen" >&2; exit 255',
    "late": "sleep 3600",
}
PROFILE = Profile(
    subject="candidate", total_us=10.0,
    rows=(KernelRow(name="silu(float const*)", calls=1, total_us=10.0, share=1.0, authored=True, block=256),),
)  # fmt: skip


def tools(bench: Bench) -> ProfileTools:
    building = Building(build=lambda: None, vectorisation=lambda: ())
    made = ProfileTools(bench.workspace, bench.runtime, bench.reference, building)
    made.ncu = Ncu(made.solo, probe_limit_s=0.5)
    return made


@pytest.mark.parametrize("state", STUBS)
def test_ncu_that_cannot_count_is_told_once_and_not_tried_again(make_bench: Callable[..., Bench], state: str) -> None:
    bench = make_bench(device="cuda", name="ncu", script=STUBS[state])
    used = tools(bench)
    first, second = (used.counted(PROFILE, bench.solo.probe) for _ in range(2))
    assert used.ncu.access().state == state
    assert bench.runs == 1
    assert first.rows == PROFILE.rows, "the profile without counters stands"
    assert used.ncu.access().message in first.notes[0]
    assert second.notes == ()


def test_ncu_that_is_not_installed_is_said_with_where_it_comes_from(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(device="cuda")
    monkeypatch.setitem(bench.runtime.environment, "PATH", "/nonexistent")
    access = Ncu(bench.solo).access()
    if access.state != "missing":
        pytest.skip("this machine's toolkit has ncu where it is always looked for")
    assert access.message.startswith("ncu is not installed here: it comes with")


def test_counters_stand_beside_the_times_of_the_same_kernel(make_bench: Callable[..., Bench]) -> None:
    script = f"""
log=; while [ $# -gt 0 ]; do [ "$1" = --log-file ] && log=$2; shift; done
cat > "$log" <<'PAGE'
{page("silu(const float *)")}
PAGE"""
    bench = make_bench(device="cuda", name="ncu", script=script)
    (row,) = tools(bench).counted(PROFILE, bench.solo.probe).rows
    assert row.counters is not None
    assert row.counters.time_us == 30.592
    assert row.evidence == "torch.profiler, ncu"
    assert row.total_us == 10.0, "ncu's replayed time is never the kernel's time"
    assert bench.runs == 2, "a probe, and the profile"


def test_sanitizer_names_the_kernel_of_a_fault(make_bench: Callable[..., Bench]) -> None:
    script = f"""
log=; while [ $# -gt 0 ]; do [ "$1" = --log-file ] && log=$2; shift; done
cat > "$log" <<'PAGE'
{MEMCHECK}PAGE
exit 1"""
    bench = make_bench(device="cuda", name="compute-sanitizer", script=script)
    place = fault.find(Sanitizer(bench.solo), bench.solo.probe(), Code.MEM_FAULT)
    assert place is not None
    assert (place.evidence, place.kernel, place.file, place.line) == ("memcheck", "bad", "kernels/bad.cu", 12)


def test_sanitizer_that_refuses_the_device_is_not_asked_again(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(
        device="cuda", name="compute-sanitizer", script='echo "========= Error: Device not supported."; exit 1'
    )
    used = Sanitizer(bench.solo)
    problems = [used.check(bench.solo.probe(), "racecheck").problem for _ in range(2)]
    assert problems[0] == problems[1]
    assert "Device not supported" in problems[0]
    assert bench.runs == 1


def test_without_a_gpu_the_compiler_still_says_what_each_kernel_uses(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(device="cuda")
    building = Building(build=lambda: BUILD, vectorisation=lambda: ())
    used = ProfileTools(bench.workspace, bench.runtime, bench.reference, building)
    profile = used.profile("candidate", present=False)
    assert [(row.name, row.registers, row.evidence) for row in profile.rows] == [(SILU.kernel, 40, "ptxas")]
    assert profile.notes[0].startswith("there is no GPU here")
    assert used.sanitize("memcheck", present=False).problem == "there is no GPU here"


def test_missing_disassembler_is_named_with_where_it_comes_from(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "find", lambda name, **_: None if name == "nvdisasm" else f"/usr/bin/{name}")
    bench = make_bench(device="cuda")
    found = disassemble(bench.solo, bench.workspace.root / "lib.so", kernel="silu")
    assert found.problem.startswith("nvdisasm is not installed here: it comes with the CUDA toolkit")


def test_disassemblers_run_in_the_sandbox_and_their_text_is_read(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"""
case "$1" in
  -xelf) test -r "$3" && : > lib.1.sm_90a.cubin ;;
  -c) cat <<'TEXT'
{SASS.partition(chr(10))[2]}
TEXT
  ;;
esac"""
    bench = make_bench(device="cuda", name="cuobjdump", script=script)
    folder = Path(bench.runtime.environment["PATH"].split(":")[1])
    (folder / "nvdisasm").write_text((folder / "cuobjdump").read_text(), encoding="utf-8")
    (folder / "nvdisasm").chmod(0o755)
    library = bench.workspace.root / "lib.so"
    library.write_bytes(b"x")
    found = disassemble(bench.solo, library, kernel="silu")
    assert [(item.name, item.architecture) for item in found.kernels] == [("silu", "sm_90a")], found.problem


def test_silent_profiler_never_rejects_a_candidate_under_the_strict_policy(
    tmp_path: Path, interpreter: Interpreter
) -> None:
    task = Task(name="strict", device="cuda", library_policy="strict")
    workspace = Workspace.create(tmp_path / "workspace", task=task, model_source=MODEL)
    evaluator = Evaluator(workspace, interpreter=interpreter)
    silent = Profile(subject="candidate", rows=(), total_us=0.0, notes=(SILENT,))
    (flag,) = evaluator._share_flags(silent)
    assert SILENT in flag.message
    with pytest.raises(Rejected, match="authored kernels carry 0%"):
        evaluator._share_flags(Profile(subject="candidate", rows=(OTHERS,), total_us=1.0))


OTHERS = KernelRow(name="gemm", calls=1, total_us=1.0, share=1.0)
