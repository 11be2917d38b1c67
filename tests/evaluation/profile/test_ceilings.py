"""Ceilings are measured once for a device, driver and torch, and kept for the machine."""

from pathlib import Path

from cuda_tui.evaluation.profile.ceilings import device_ceilings, matrix_rate, rate

DEVICE = {"name": "NVIDIA H200", "uuid": "aaaa", "torch": "2.11.0"}


class Measure:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, list[float]]:
        self.times += 1
        return {"copy": [4200.0, 4300.0, 4250.0], "fp32": [50_000.0], "empty": []}


def test_second_profile_on_a_device_reads_what_the_first_measured(tmp_path: Path) -> None:
    measure = Measure()
    first, second = (device_ceilings(tmp_path, DEVICE, driver="580", measure=measure) for _ in range(2))
    assert first == second
    assert measure.times == 1
    assert rate(first, "copy") == 4250.0
    assert (first[0].samples, round(first[0].spread, 4)) == (3, 0.0118)
    assert [item.name for item in first] == ["copy", "fp32"]


def test_another_driver_device_or_torch_is_measured_anew(tmp_path: Path) -> None:
    measure = Measure()
    device_ceilings(tmp_path, DEVICE, driver="580", measure=measure)
    device_ceilings(tmp_path, DEVICE, driver="581", measure=measure)
    device_ceilings(tmp_path, DEVICE | {"uuid": "bbbb"}, driver="580", measure=measure)
    device_ceilings(tmp_path, DEVICE | {"torch": "2.12"}, driver="580", measure=measure)
    assert measure.times == 4


def test_damaged_file_is_written_anew(tmp_path: Path) -> None:
    measure = Measure()
    device_ceilings(tmp_path, DEVICE, driver="580", measure=measure)
    (path,) = (tmp_path / "ceilings").iterdir()
    path.write_text("{", encoding="utf-8")
    device_ceilings(tmp_path, DEVICE, driver="580", measure=measure)
    assert measure.times == 2


def test_products_of_a_type_without_a_rate_of_its_own_use_that_of_fp32(tmp_path: Path) -> None:
    found = device_ceilings(tmp_path, DEVICE, driver="580", measure=Measure())
    assert matrix_rate(found, "float64", tf32=True) == 50_000.0
    assert matrix_rate(found, "float32", tf32=True) is None


def test_rates_measured_beside_other_work_are_not_kept(tmp_path: Path) -> None:
    found = device_ceilings(tmp_path, DEVICE, driver="580", measure=lambda: {"copy": [1000.0, 4000.0, 4200.0]})
    assert rate(found, "copy") == 4000.0
    assert not (tmp_path / "ceilings").exists()
