"""What scripts/skills_bench.py measures: each kernel of the skills against PyTorch and against the form it replaces."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

Call = Callable[..., Any]
FLOAT, BFLOAT = torch.float32, torch.bfloat16


@dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison. `forms` take what `draw` returns; `moved` is the least traffic of a call in bytes."""

    skill: str
    name: str
    draw: Callable[[], tuple[torch.Tensor, ...]]
    forms: dict[str, Call]
    moved: int
    flop: float = 0.0
    compiled: Call | None = None  # also timed under torch.compile


def normal(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def size(dtype: torch.dtype) -> int:
    return dtype.itemsize


def softmax_case(ours: Any, rows: int, columns: int, dtype: torch.dtype, paths: dict[str, int]) -> Case:
    forms: dict[str, Call] = {"eager": lambda x: torch.softmax(x, -1), "ours": lambda x: ours.softmax(x, 0)}
    forms |= {label: lambda x, path=path: ours.softmax(x, path) for label, path in paths.items()}
    return Case(
        skill="reductions",
        name=f"softmax {rows}x{columns} {str(dtype)[6:]}",
        draw=lambda: (normal(rows, columns, dtype=dtype),),
        forms=forms,
        moved=2 * rows * columns * size(dtype),
        compiled=(lambda x: torch.softmax(x, -1)) if rows * columns >= 1 << 26 else None,
    )


def reductions(ours: Any) -> list[Case]:
    block, cluster, online = {"block": 2}, {"cluster": 3}, {"online": 4}
    cases = [
        softmax_case(ours, 65536, 256, FLOAT, block),
        softmax_case(ours, 65536, 1024, BFLOAT, block),
        softmax_case(ours, 16384, 4096, FLOAT, cluster | online),
        softmax_case(ours, 64, 16384, FLOAT, block | online),
        softmax_case(ours, 16, 65536, FLOAT, online),
        softmax_case(ours, 2048, 128000, FLOAT, online),
        softmax_case(ours, 2048, 32000, BFLOAT, online),
    ]

    def written_out(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return -torch.log_softmax(logits, -1).gather(1, target[:, None])[:, 0]

    for rows, classes, dtype in ((2048, 128000, FLOAT), (8192, 32000, BFLOAT), (1000, 32001, FLOAT)):
        cases.append(
            Case(
                skill="reductions",
                name=f"cross_entropy {rows}x{classes} {str(dtype)[6:]}",
                draw=lambda rows=rows, classes=classes, dtype=dtype: (
                    normal(rows, classes, dtype=dtype),
                    torch.randint(classes, (rows,), device="cuda"),
                ),
                forms={"eager": written_out, "ours": ours.cross_entropy},
                moved=rows * classes * size(dtype),
                compiled=written_out if classes == 128000 else None,
            )
        )
    for n in (1 << 16, 1 << 22, 1 << 26):
        cases.append(
            Case(
                skill="reductions",
                name=f"mse_loss {n}",
                draw=lambda n=n: (normal(n), normal(n)),
                forms={"eager": functional.mse_loss, "ours": ours.mse_loss, "atomics": ours.variant_mse},
                moved=8 * n,
                compiled=functional.mse_loss if n == 1 << 26 else None,
            )
        )
    for rows, columns in ((16384, 4096), (65536, 256), (1 << 20, 64)):
        cases.append(
            Case(
                skill="reductions",
                name=f"column_sum {rows}x{columns}",
                draw=lambda rows=rows, columns=columns: (normal(rows, columns),),
                forms={
                    "eager": lambda x: x.sum(0),
                    "ours": ours.column_sum,
                    "thread a column": ours.variant_column_sum,
                },
                moved=4 * rows * columns,
                compiled=(lambda x: x.sum(0)) if rows == 65536 else None,
            )
        )
    return cases


def rms_written_out(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def fusion(ours: Any) -> list[Case]:
    cases = []
    for rows, columns in ((8192, 4096), (4096, 8192)):
        cases.append(
            Case(
                skill="memory-bound-fusion",
                name=f"rms_norm {rows}x{columns}",
                draw=lambda rows=rows, columns=columns: (normal(rows, columns), normal(columns)),
                forms={
                    "eager": rms_written_out,
                    "rms_norm": lambda x, w: functional.rms_norm(x, w.shape, w, 1e-5),
                    "ours": lambda x, w: ours.norm(x, w, None, 1e-5),
                    "two reads": lambda x, w: ours.variant_rms_norm(x, w, 1e-5, True, 256),
                    "two reads, 1024 threads": lambda x, w: ours.variant_rms_norm(x, w, 1e-5, True, 1024),
                    "two reads, scalar": lambda x, w: ours.variant_rms_norm(x, w, 1e-5, False, 256),
                },
                moved=8 * rows * columns,
                compiled=rms_written_out if rows == 8192 else None,
            )
        )
    rows, columns = 8192, 4096

    def add_layer_norm(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        total = x + r
        return functional.layer_norm(total, w.shape, w, b, 1e-5), total

    def two_kernels(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        total = x + r
        return ours.norm(total, w, b, 1e-5), total

    for dtype in (FLOAT, BFLOAT):
        cases.append(
            Case(
                skill="memory-bound-fusion",
                name=f"add + layer_norm {rows}x{columns} {str(dtype)[6:]}",
                draw=lambda dtype=dtype: (
                    normal(rows, columns, dtype=dtype),
                    normal(rows, columns, dtype=dtype),
                    normal(columns, dtype=dtype),
                    normal(columns, dtype=dtype),
                ),
                forms={
                    "eager": add_layer_norm,
                    "ours": lambda x, r, w, b: ours.add_norm(x, r, w, b, 1e-5),
                    "add apart": two_kernels,
                },
                moved=4 * rows * columns * size(dtype),
                compiled=add_layer_norm,
            )
        )
    return cases


def pointwise(ours: Any) -> list[Case]:
    def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return functional.silu(gate) * up

    cases = [
        Case(
            skill="cuda-optimization",
            name=f"silu_mul {n} {str(dtype)[6:]}",
            draw=lambda n=n, dtype=dtype: (normal(n + 4, dtype=dtype), normal(n + 4, dtype=dtype)),
            forms={
                "eager": lambda g, u, n=n: silu_mul(g[:n], u[:n]),
                "ours": lambda g, u, n=n: ours.silu_mul(g[:n], u[:n]),
                "ours, off by one": lambda g, u, n=n: ours.silu_mul(g[1 : n + 1], u[1 : n + 1]),
            }
            | ({"scalar": lambda g, u, n=n: ours.variant_silu_mul(g[:n], u[:n])} if dtype is FLOAT else {}),
            moved=3 * n * size(dtype),
            compiled=(lambda g, u, n=n: silu_mul(g[:n], u[:n])) if n == 1 << 24 else None,
        )
        for n, dtype in ((1 << 20, FLOAT), (1 << 24, FLOAT), (58_720_256, FLOAT), (58_720_256, BFLOAT))
    ]
    cases.append(
        Case(
            skill="workspace-contract",
            name="scale_shift 32x256x56x56",
            draw=lambda: (normal(32, 256, 56, 56), normal(256), normal(256)),
            forms={
                "eager": lambda x, a, b: x * a.view(-1, 1, 1) + b.view(-1, 1, 1),
                "ours": ours.scale_shift,
                "64-bit division": ours.variant_scale_shift,
            },
            moved=8 * 32 * 256 * 56 * 56,
            compiled=lambda x, a, b: x * a.view(-1, 1, 1) + b.view(-1, 1, 1),
        )
    )
    cases.append(
        Case(
            skill="memory-bound-fusion",
            name="transpose_add 4096x4096",
            draw=lambda: (normal(4096, 4096), normal(4096)),
            forms={
                "eager": lambda x, b: (x + b).t().contiguous(),
                "ours": ours.transpose_add,
                "no padding": lambda x, b: ours.variant_transpose_add(x, b, True),
                "no tile": lambda x, b: ours.variant_transpose_add(x, b, False),
            },
            moved=8 * 4096 * 4096,
            compiled=lambda x, b: (x + b).t().contiguous(),
        )
    )
    return cases


def products(ours: Any) -> list[Case]:
    def gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return functional.gelu(functional.linear(x, w, b))

    def gated(x: torch.Tensor, g: torch.Tensor, u: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return functional.linear(functional.silu(functional.linear(x, g)) * functional.linear(x, u), d)

    cases = []
    for rows, inner, columns in ((64, 1024, 4096), (4096, 1024, 4096)):
        cases.append(
            Case(
                skill="gemm-epilogues",
                name=f"linear_gelu {rows}x{inner}x{columns} bfloat16",
                draw=lambda rows=rows, inner=inner, columns=columns: (
                    normal(rows, inner, dtype=BFLOAT),
                    normal(columns, inner, dtype=BFLOAT) * inner**-0.5,
                    normal(columns, dtype=BFLOAT),
                ),
                forms={
                    "eager": gelu,
                    "ours": ours.linear_gelu,
                    "product alone": lambda x, w, b: functional.linear(x, w, b),
                    "_addmm_activation": lambda x, w, b: torch._addmm_activation(b, x, w.t(), use_gelu=True),
                },
                moved=2 * (rows * inner + columns * inner + rows * columns),
                flop=2.0 * rows * inner * columns,
                compiled=gelu,
            )
        )
        cases.append(
            Case(
                skill="gemm-epilogues",
                name=f"gated_mlp {rows}x{inner}x{columns} bfloat16",
                draw=lambda rows=rows, inner=inner, columns=columns: (
                    normal(rows, inner, dtype=BFLOAT),
                    normal(columns, inner, dtype=BFLOAT) * inner**-0.5,
                    normal(columns, inner, dtype=BFLOAT) * inner**-0.5,
                    normal(inner, columns, dtype=BFLOAT) * columns**-0.5,
                ),
                forms={"eager": gated, "ours": lambda x, g, u, d: ours.gated_mlp(x, g, u, d, None)},
                moved=2 * (2 * rows * inner + 3 * columns * inner),
                flop=6.0 * rows * inner * columns,
                compiled=gated,
            )
        )
    return cases


def tensor_cores(ours: Any) -> list[Case]:
    def gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return functional.gelu(functional.linear(x, w, b))

    return [
        Case(
            skill="tensor-cores-hopper",
            name=f"gelu(linear) {m}x{n}x{k}",
            draw=lambda m=m, n=n, k=k: (
                normal(m, k, dtype=BFLOAT),
                normal(n, k, dtype=BFLOAT) * k**-0.5,
                normal(n, dtype=BFLOAT),
            ),
            forms={
                "eager": gelu,
                "product alone": functional.linear,
                "linear_gelu": ours.linear_gelu,
                "mma": ours.mma_linear_gelu,
                "ours": ours.wgmma_linear_gelu,
            },
            moved=2 * (m * k + n * k + m * n),
            flop=2.0 * m * n * k,
        )
        for m, n, k in ((256, 4096, 1024), (4096, 4096, 1024), (4096, 4096, 4096), (16384, 4096, 512))
    ]


def all_cases(ours: Any) -> list[Case]:
    """In the order of the table."""
    return [*pointwise(ours), *reductions(ours), *fusion(ours), *products(ours), *tensor_cores(ours)]
