"""The Kernels tab with a GPU profile: what to look at first, columns that fit, and what is not claimed."""

from textual.content import Content

from cuda_tui.evaluation.report import KernelRow, Profile
from cuda_tui.tui.render.kernels import kernel_lines
from tests.tools.test_profile_wording import PROFILE as GPU_PROFILE


def text(lines: list[Content]) -> str:
    """Lines as plain text."""
    return "\n".join(line.plain for line in lines)


def test_gpu_profile_fits_eighty_columns_and_begins_with_what_to_look_at() -> None:
    for width in (78, 118, 160):
        lines = [line.plain for line in kernel_lines((GPU_PROFILE,), width)]
        assert lines[1].startswith("62% of the time is silu<4>, which reaches 31% of copy bandwidth")
        rows = [line for line in lines if "torch.profiler" in line]
        assert len(rows) == 2
        assert all(len(row) <= width for row in rows)
        assert all("torch.profiler" in row for row in rows), "the evidence stays at every width"
    wide = "\n".join(line.plain for line in kernel_lines((GPU_PROFILE,), 160))
    assert "25% registers" in wide
    assert "long scoreboard 70%" in wide
    assert "Idle 4.00 µs between gemm and silu" in wide
    assert "Roof measured here: copy 4,250 GB/s, bf16 790 TFLOP/s" in wide


def test_profile_without_gpu_activity_shows_no_table_and_no_percentages() -> None:
    silent = Profile(subject="candidate", rows=(), total_us=0.0, notes=("no GPU activity recorded",))
    shown = text(kernel_lines((silent,), 80))
    assert "no GPU activity recorded" in shown
    assert "%" not in shown
    assert "0.00" not in shown


def test_kernels_that_only_the_compiler_knows_have_no_times() -> None:
    row = KernelRow(name="silu", calls=0, total_us=0.0, share=0.0, authored=True, registers=40, evidence="ptxas")
    shown = text(kernel_lines((Profile(subject="candidate", rows=(row,), total_us=0.0),), 80))
    assert "ptxas" in shown
    assert "%" not in shown
    assert "0.00" not in shown
