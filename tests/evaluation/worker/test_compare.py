"""The numeric rule on tensors alone: precision classes, NaN and Inf, integers, small outputs."""

import math

import pytest
import torch

from cuda_tui.evaluation.worker.compare import Pool, check_output, check_stack, measure

K = 4096


def rounded_like_tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.fixture(scope="module")
def product() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(48, K, generator=generator), torch.randn(K, 48, generator=generator)


def judge(
    candidate: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor, cap: float = 0.01
) -> dict[str, object]:
    return check_output(candidate, reference, eager, Pool(), cap=cap)


def test_precision_classes_separate_at_a_long_sum(product: tuple[torch.Tensor, torch.Tensor]) -> None:
    a, b = product
    reference, eager = a.double() @ b.double(), a @ b
    whole = torch.ones(reference.shape, dtype=torch.bool)
    errors = {
        "fp32": measure((b.t() @ a.t()).t(), reference, whole).whole,
        "tf32": measure(rounded_like_tf32(a) @ rounded_like_tf32(b), reference, whole).whole,
        "bf16": measure((a.bfloat16().float() @ b.bfloat16().float()), reference, whole).whole,
    }
    assert errors["fp32"] < 1e-6 < 1e-4 < errors["tf32"] < 1e-3 < errors["bf16"] < 1e-2
    assert judge((b.t() @ a.t()).t(), reference, eager)["passed"]
    for lower in (rounded_like_tf32(a) @ rounded_like_tf32(b), a.bfloat16().float() @ b.bfloat16().float()):
        found = judge(lower, reference, eager)
        assert (found["passed"], found["code"]) == (False, "PRECISION")


def test_reference_in_bf16_allows_bf16_and_no_less(product: tuple[torch.Tensor, torch.Tensor]) -> None:
    a, b = product
    reference, eager = a.double() @ b.double(), a.bfloat16() @ b.bfloat16()
    assert judge((b.t().bfloat16() @ a.t().bfloat16()).t(), reference, eager, cap=0.05)["passed"]
    coarse = (a.to(torch.float8_e4m3fn).float() @ b.to(torch.float8_e4m3fn).float()).bfloat16()
    assert not judge(coarse, reference, eager, cap=0.03)["passed"]


def test_zeros_and_constants_are_named() -> None:
    reference = torch.softmax(torch.randn(4, 50_000, dtype=torch.float64), -1)
    zeros = judge(torch.zeros(4, 50_000), reference, reference.float())
    assert zeros["reason"] == "output is all zeros"
    constant = judge(torch.full((4, 50_000), 2e-5), reference, reference.float())
    assert "constant" in str(constant["reason"])


@pytest.mark.parametrize(
    ("theirs", "passes"),
    [
        ([math.nan, math.inf, -math.inf], True),
        ([0.0, math.inf, -math.inf], False),
        ([math.nan, 3e38, -math.inf], False),
        ([math.nan, -math.inf, math.inf], False),
        ([math.inf, math.nan, -math.inf], False),
    ],
)
def test_nan_matches_only_nan_and_inf_only_the_same_inf(theirs: list[float], passes: bool) -> None:
    reference = torch.randn(128, dtype=torch.float64)
    reference[:3] = torch.tensor([math.nan, math.inf, -math.inf])
    candidate = reference.float()
    candidate[:3] = torch.tensor(theirs)
    found = judge(candidate, reference, reference.float())
    assert found["passed"] is passes
    assert found["code"] == (None if passes else "NONFINITE")


def test_new_nan_is_rejected() -> None:
    reference = torch.randn(128, dtype=torch.float64)
    candidate = reference.float()
    candidate[5] = math.nan
    found = judge(candidate, reference, reference.float())
    assert found["code"] == "NONFINITE"
    assert found["worst"][0]["index"] == [5]  # type: ignore[index]


def test_position_where_eager_overflows_and_fp64_does_not_proves_nothing() -> None:
    reference = torch.randn(128, dtype=torch.float64)
    reference[0] = 1e39
    eager = reference.float()
    for value in (math.inf, math.nan, 3e38):
        candidate = eager.clone()
        candidate[0] = value
        assert judge(candidate, reference, eager)["passed"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_are_exact(dtype: torch.dtype) -> None:
    reference = (torch.arange(300) % 2).to(dtype)
    assert judge(reference.clone(), reference, reference)["passed"]
    wrong = reference.clone()
    wrong[7] = 0
    assert judge(wrong, reference, reference)["code"] == "NUM_MISMATCH"


def test_one_wrong_slice_is_found_in_a_large_output() -> None:
    reference = torch.randn(512, 256, dtype=torch.float64)
    candidate = reference.float()
    candidate[100] += 1e-5
    found = judge(candidate, reference, reference.float())
    assert not found["passed"]


def test_one_wrong_element_is_not_called_a_lower_precision() -> None:
    reference = torch.randn(512, 512, dtype=torch.float64)
    candidate = reference.float()
    candidate[3, 4] = 0.0
    found = judge(candidate, reference, reference.float())
    assert found["code"] == "NUM_MISMATCH"
    assert found["worst"][0]["index"] == [3, 4]  # type: ignore[index]
    assert len(found["error_map"]) <= 16  # type: ignore[arg-type]


def stack(value: float, count: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.tensor(value, dtype=torch.float64) + torch.randn((), generator=generator) * 0.1 for _ in range(count)]


def test_scalar_is_judged_by_its_spread_over_draws() -> None:
    references = stack(5.0)
    eagers = [value.float() for value in references]
    right = [value * (1 + 2e-7) for value in eagers]
    assert check_stack(right, references, eagers, cap=0.01)["passed"]
    constant = [torch.tensor(5.0)] * 6
    assert not check_stack(constant, references, eagers, cap=0.01)["passed"]
    off = [value * 1.0001 for value in eagers]
    assert not check_stack(off, references, eagers, cap=0.01)["passed"]


def test_scalar_that_never_varies_is_weak_evidence_and_still_compared() -> None:
    references = [torch.zeros((), dtype=torch.float64)] * 6
    eagers = [torch.zeros(())] * 6
    same = check_stack(eagers, references, eagers, cap=0.01)
    assert same["passed"]
    assert same["weak"]
    assert not check_stack([torch.ones(())] * 6, references, eagers, cap=0.01)["passed"]


def test_empty_output_is_equal_to_itself() -> None:
    empty = torch.zeros(0, 5)
    assert judge(empty, empty.double(), empty)["passed"]


def test_output_of_rounding_errors_is_held_to_eagers_own() -> None:
    reference = torch.randn(512, dtype=torch.float64) * 1e-17
    eager, other = torch.randn(512) * 1e-8, torch.randn(512) * 1e-8
    found = judge(other, reference, eager)
    assert found["passed"]
    assert found["rounding_level"]
    assert not judge(torch.randn(512) * 1e-5, reference, eager)["passed"]
