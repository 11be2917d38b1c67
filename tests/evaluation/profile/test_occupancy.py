"""Occupancy by our own calculation. Expected values are those that the toolkit's occupancy calculator gives."""

import pytest

from cuda_tui.evaluation.profile.occupancy import LIMITS, occupancy

HOPPER = (9, 0)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "share", "blocks", "limiter"),
    [
        (256, 32, 0, 1.0, 8, ""),
        (256, 40, 0, 0.75, 6, "registers"),  # 5 x 256 registers a warp: 12 warps a quarter, 48 in all
        (256, 64, 0, 0.5, 4, "registers"),
        (256, 128, 0, 0.25, 2, "registers"),
        (1024, 64, 0, 0.5, 1, "registers"),
        (32, 16, 0, 0.5, 32, "blocks"),
        (128, 32, 48 * 1024, 0.25, 4, "shared memory"),
        (768, 24, 0, 0.75, 2, "block size"),
    ],
)
def test_limits_of_hopper(threads: int, registers: int, shared: int, share: float, blocks: int, limiter: str) -> None:
    found = occupancy(HOPPER, threads=threads, registers=registers, shared_bytes=shared)
    assert found is not None
    assert (found.theoretical, found.blocks_per_sm, found.limiter) == (share, blocks, limiter)


def test_waves_are_the_grid_over_what_fits_at_once() -> None:
    found = occupancy(HOPPER, threads=256, registers=32, shared_bytes=0, grid=2112, sms=132)
    assert found is not None
    assert found.waves == 2.0


def test_block_that_does_not_fit_has_no_occupancy() -> None:
    assert occupancy(HOPPER, threads=1024, registers=255, shared_bytes=0) is None
    assert occupancy(HOPPER, threads=128, registers=32, shared_bytes=230 * 1024) is None


def test_unknown_architecture_is_not_guessed() -> None:
    assert occupancy((7, 0), threads=256, registers=32, shared_bytes=0) is None


def test_every_supported_architecture_can_be_filled() -> None:
    for capability in LIMITS:
        found = occupancy(capability, threads=256, registers=32, shared_bytes=0)
        assert found is not None
        assert found.theoretical == 1.0
