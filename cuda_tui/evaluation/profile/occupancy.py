"""How many warps fit on a multiprocessor, from a launch's registers, shared memory and block size.

Limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the rounding
(registers by warp and by quarter of the multiprocessor, shared memory with the 1 KiB that the system keeps of each
block) is that of the toolkit's occupancy calculator.
"""

from dataclasses import dataclass

from cuda_tui.evaluation.report import Occupancy

WARP = 32
PARTITIONS = 4  # of a multiprocessor; each has a quarter of the registers
REGISTER_UNIT = 256  # registers are given to a warp in steps of this many
SHARED_UNIT = 128
SHARED_RESERVED = 1024  # bytes of each block, from compute capability 8.0 on


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one multiprocessor."""

    warps: int
    blocks: int
    shared_bytes: int
    registers: int = 65_536


_KIB = 1024
LIMITS = {
    (8, 0): Limits(warps=64, blocks=32, shared_bytes=164 * _KIB),
    (8, 6): Limits(warps=48, blocks=16, shared_bytes=100 * _KIB),
    (8, 7): Limits(warps=48, blocks=16, shared_bytes=164 * _KIB),
    (8, 9): Limits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    (9, 0): Limits(warps=64, blocks=32, shared_bytes=228 * _KIB),
    (10, 0): Limits(warps=64, blocks=32, shared_bytes=228 * _KIB),
    (10, 3): Limits(warps=64, blocks=32, shared_bytes=228 * _KIB),
    (11, 0): Limits(warps=48, blocks=24, shared_bytes=228 * _KIB),
    (12, 0): Limits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    (12, 1): Limits(warps=48, blocks=24, shared_bytes=100 * _KIB),
}


def occupancy(
    capability: tuple[int, int], *, threads: int, registers: int, shared_bytes: int, grid: int = 0, sms: int = 0
) -> Occupancy | None:
    """Theoretical occupancy of a launch, with the waves of its grid where grid and multiprocessors are known.

    `shared_bytes` is static plus dynamic shared memory of a block. None for an unknown capability and for a block
    that does not fit at all.
    """
    limits = LIMITS.get(capability)
    if limits is None or threads < 1:
        return None
    warps = -(-threads // WARP)
    fits = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared_memory(limits, shared_bytes),
    }
    blocks = min(fits.values())
    if blocks < 1:
        return None
    share = blocks * warps / limits.warps
    # Of several limits the one that a change of the kernel can lift is named; a full multiprocessor has none.
    limiter = next((name for name in ("registers", "shared memory", "blocks", "warps") if fits[name] == blocks), "")
    return Occupancy(
        theoretical=share,
        limiter="" if share == 1.0 else {"warps": "block size"}.get(limiter, limiter),
        blocks_per_sm=blocks,
        waves=grid / (blocks * sms) if grid and sms else None,
    )


def _by_registers(limits: Limits, warps: int, registers: int) -> int:
    if registers < 1:
        return limits.blocks
    per_warp = _rounded(registers * WARP, REGISTER_UNIT)
    return limits.registers // PARTITIONS // per_warp * PARTITIONS // warps


def _by_shared_memory(limits: Limits, shared_bytes: int) -> int:
    return limits.shared_bytes // _rounded(shared_bytes + SHARED_RESERVED, SHARED_UNIT)


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit
