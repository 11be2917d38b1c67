"""Rows of a profile: shares, what is the candidate's own, bounds, and what is not claimed."""

from typing import Any

from cuda_tui.evaluation.profiler import authored_share, to_profile, with_roofline


def found(**extra: Any) -> dict[str, Any]:
    rows = [
        {"name": "cuda_tui_0123abcd::fused", "calls": 1.0, "self_us": 300.0, "device_us": 0.0},
        {"name": "aten::mm", "calls": 2.0, "self_us": 100.0, "device_us": 0.0},
    ]
    return {"rows": rows, "device_events": 0, **extra}


def test_own_operators_are_named_as_they_are_called_and_counted() -> None:
    profile = to_profile(found(namespaces=["cuda_tui_0123abcd"]), subject="candidate", device="cpu")
    assert [row.name for row in profile.rows] == ["cuda_extension::fused", "aten::mm"]
    assert authored_share(profile) == 0.75


def test_operators_of_another_namespace_are_not_the_candidates_own() -> None:
    profile = to_profile(found(namespaces=["cuda_tui_ffff"]), subject="candidate", device="cpu")
    assert authored_share(profile) == 0.0


def test_gpu_profile_without_device_events_gives_no_percentages() -> None:
    profile = to_profile(found(), subject="reference", device="cuda")
    assert profile.rows == ()
    assert "no GPU activity recorded" in profile.notes


def test_roofline_says_which_ceiling_binds_and_how_near_it_is() -> None:
    ceilings = {"bandwidth_gbs": 10.0, "gflops": 50.0}
    profile = to_profile(found(ceilings=ceilings), subject="reference", device="cpu")
    node = {"op": "aten.mm.default", "name": "mm", "outputs": [{"bytes": 1000}], "flop": 4_000_000}
    trace = {
        "nodes": [node | {"bytes_read": 2000, "bytes_written": 1000}],
        "totals": {"bytes_read": 2000, "bytes_written": 1000, "flop": 4_000_000},
        "inputs": [{"bytes": 2000}],
        "parameters": [],
        "outputs": {"ref": "mm"},
    }
    row = next(row for row in with_roofline(profile, trace).rows if row.name == "aten::mm")
    assert row.bound == "compute"
    assert row.roofline_share == 0.8  # 4 MFLOP at 50 GFLOP/s are 80 of 100 µs


def test_work_belongs_to_the_name_that_did_it_and_not_to_its_caller() -> None:
    rows = [
        {"name": "aten::_softmax", "calls": 1.0, "self_us": 20.0, "device_us": 0.0},
        {"name": "aten::softmax", "calls": 1.0, "self_us": 2.0, "device_us": 0.0},
    ]
    ceilings = {"bandwidth_gbs": 10.0, "gflops": 50.0}
    profile = to_profile({"rows": rows, "device_events": 0, "ceilings": ceilings}, subject="reference", device="cpu")
    node = {"op": "aten.softmax.int", "name": "softmax", "outputs": [{"bytes": 1000}], "flop": 10}
    trace = {
        "nodes": [node | {"bytes_read": 50_000, "bytes_written": 50_000}],
        "totals": {"bytes_read": 50_000, "bytes_written": 50_000, "flop": 10},
        "inputs": [],
        "parameters": [],
        "outputs": {"ref": "softmax"},
    }
    inner, outer = with_roofline(profile, trace).rows
    assert inner.roofline_share == 0.5
    assert outer.roofline_share is None
