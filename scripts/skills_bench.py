"""Measure every gain that the skills claim, on this machine's GPU, and print one table.

    python3 -m scripts.skills_bench --out FOLDER [--only SUBSTRING] [--budget SECONDS] [--no-compile]

Device time: a CUDA graph of n calls over rotating inputs of three times L2 together, outputs held; one event pair
around a replay behind a spin; forms interleaved over ROUNDS; median and the spread (quartiles) of the rounds. One
process, so the figures carry its bias of up to 0.5%; they certify no candidate, `measure` does. After the graphs
of a case are built another process uses the GPU once: small kernels run slow in a process that has just captured, until
then. Wall time: host clock over queued calls. FOLDER/skills_bench.json gets every sample.
"""

import argparse
import importlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from scripts.skills_cases import Case, all_cases
from scripts.skills_numerics import exact_forms, variance_forms
from tests.skills.extract import write_workspace

ROUNDS = 9
UNRECORDED = 2
SPIN_CYCLES = 200_000  # about 100 us: replays start behind it, so that launching is not timed
NEIGHBOUR = """
import sys, torch
x = torch.ones(1 << 16, device="cuda")
for line in sys.stdin:
    x.mul_(1.0); torch.cuda.synchronize(); print("done", flush=True)
"""


class Neighbour:
    """A second process that touches the GPU when asked."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def touch(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("touch\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", "the neighbour process died"

    def close(self) -> None:
        self.process.communicate(timeout=20)


def leaves(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [leaf for item in value for leaf in leaves(item)]


def bytes_of(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def capture(call: Callable[..., Any], sets: list[tuple[torch.Tensor, ...]], calls: int) -> tuple[Any, list[Any]]:
    """A graph of `calls` calls over the sets, and the outputs, which it keeps writing."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for chosen in sets[:3]:
            call(*chosen)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = [call(*chosen) for chosen in itertools.islice(itertools.cycle(sets), calls)]
    return graph, held


def replay_us(graph: Any) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SPIN_CYCLES)
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def summary(samples: list[float]) -> dict[str, Any]:
    low, middle, high = statistics.quantiles(samples, n=4)
    return {"us": middle, "spread": (high - low) / middle, "n": len(samples), "samples_us": samples}


def measure(case: Case, neighbour: Neighbour, *, with_compile: bool) -> dict[str, Any]:
    """Medians of all forms of one case; a form that cannot be captured carries its error instead."""
    torch.cuda.empty_cache()
    first = case.draw()
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    each = bytes_of(list(first)) + bytes_of(leaves(case.forms["eager"](*first)))
    count = max(3, min(64, 3 * l2 // each + 1))
    sets = [first, *(case.draw() for _ in range(count - 1))]
    calls = max(count, 20) if each < 1 << 29 else 6
    forms = dict(case.forms)
    if with_compile and case.compiled is not None:
        torch.compiler.reset()
        forms["compile"] = torch.compile(case.compiled, dynamic=False)
    graphs, results = {}, {}
    for label, call in forms.items():
        try:
            graphs[label] = capture(call, sets, calls)
        except Exception as error:
            results[label] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
    neighbour.touch()
    samples: dict[str, list[float]] = {label: [] for label in graphs}
    for turn in range(UNRECORDED + ROUNDS):
        order = list(graphs) if turn % 2 == 0 else list(reversed(graphs))
        for label in order:
            if case.flop > 1e10:
                time.sleep(0.02)  # sustained products throttle, and slow what follows
            taken = replay_us(graphs[label][0]) / calls
            if turn >= UNRECORDED:
                samples[label].append(taken)
    results |= {label: summary(taken) for label, taken in samples.items()}
    facts = {"skill": case.skill, "name": case.name, "moved": case.moved, "flop": case.flop}
    return facts | {"sets": count, "calls": calls, "forms": results}


def wall_us(call: Callable[[], Any], calls: int = 500) -> dict[str, Any]:
    """Host time of one call as a program without graphs feels it: queued calls, then one wait."""
    samples = []
    for _ in range(ROUNDS):
        for _ in range(20):
            call()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - started) / calls * 1e6)
    return summary(samples)


def host_costs(ours: Any) -> dict[str, Any]:
    """Wall time of small calls, where launching is all there is."""
    gate, up = torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
    out = torch.empty_like(gate)
    w, b = torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
    x, r = torch.randn(8, 4096, device="cuda"), torch.randn(8, 4096, device="cuda")
    g, u = (torch.randn(512, 256, device="cuda") for _ in range(2))
    d, small = torch.randn(256, 512, device="cuda"), torch.randn(16, 256, device="cuda")
    functional = torch.nn.functional

    def ten() -> torch.Tensor:
        y = gate
        for _ in range(10):
            y = y * 1.01
        return y

    return {
        "empty_like": wall_us(lambda: torch.empty_like(gate)),
        "one eager operator (gate * up)": wall_us(lambda: gate * up),
        "ten eager operators": wall_us(ten),
        "silu(gate) * up, eager": wall_us(lambda: functional.silu(gate) * up),
        "silu_mul": wall_us(lambda: ours.silu_mul(gate, up)),
        "silu_mul_out, given its output": wall_us(lambda: ours.silu_mul_out(gate, up, out)),
        "add + layer_norm, eager": wall_us(lambda: functional.layer_norm(x + r, (4096,), w, b, 1e-5)),
        "add_norm": wall_us(lambda: ours.add_norm(x, r, w, b, 1e-5)),
        "gated MLP 16x256x512, eager": wall_us(
            lambda: functional.linear(functional.silu(functional.linear(small, g)) * functional.linear(small, u), d)
        ),
        "the same, product by product with silu_mul": wall_us(
            lambda: functional.linear(ours.silu_mul(functional.linear(small, g), functional.linear(small, u)), d)
        ),
        "gated_mlp, one operator": wall_us(lambda: ours.gated_mlp(small, g, u, d, None)),
    }


def load_extension(folder: Path) -> Any:
    """Build the workspace, with all cores, and import its module."""
    write_workspace(folder, variants=True)
    sys.path.insert(0, str(folder))
    return importlib.import_module("cuda_extension")


def row(result: dict[str, Any], peak: float) -> str:
    """One case as text: each form's time, its ratio to ours, and how near ours comes to the copy bandwidth."""
    forms = result["forms"]
    mine = forms.get("ours", {}).get("us")
    cells = []
    for label, found in forms.items():
        if "error" in found:
            cells.append(f"{label}: {found['error']}")
        else:
            ratio = "" if label == "ours" or mine is None else f" ({found['us'] / mine:.2f}x)"
            cells.append(f"{label} {found['us']:.2f} ±{found['spread']:.1%}{ratio}")
    rate = ""
    if mine is not None:
        speed = result["moved"] / mine / 1e6
        rate = (
            f"{result['flop'] / mine / 1e6:.0f} TFLOP/s" if result["flop"] else f"{speed:.2f} TB/s {speed / peak:.0%}"
        )
    return f"{result['name']:<38} {rate:<14} {'  '.join(cells)}"


def copy_bandwidth() -> float:
    """TB/s of a copy of 2 GiB, bytes read plus bytes written; median of ROUNDS."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    graph, _ = capture(lambda s, t: t.copy_(s), [(source, target)], 3)
    return 2 * source.numel() * 4 * 3 / statistics.median(replay_us(graph) for _ in range(ROUNDS)) / 1e6


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose name or skill contains this")
    parser.add_argument("--budget", type=float, default=95.0, help="seconds after which no case is begun")
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Print the table as it grows; write the samples at the end, whatever happened."""
    options, began = parse(), time.monotonic()
    neighbour = Neighbour()
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cases": []}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        ours = load_extension(Path(folder) / "workspace")
        print(f"{results['device']}, torch {torch.__version__}; built in {time.monotonic() - began:.0f} s")
        try:
            peak = results["copy_tb_s"] = copy_bandwidth()
            print(f"copy {peak:.2f} TB/s; µs a call, median and quartile spread of {ROUNDS} rounds, ratio to ours")
            results["host"] = host_costs(ours)
            print(
                "\n".join(
                    f"{name:<48} {found['us']:7.2f} µs wall ±{found['spread']:.0%}"
                    for name, found in results["host"].items()
                )
            )
            results["numerics"] = exact_forms(ours) | variance_forms(ours)
            print("\n".join(f"{name:<48} {text}" for name, text in results["numerics"].items()))
            for case in all_cases(ours):
                if options.only not in f"{case.skill} {case.name}":
                    continue
                if time.monotonic() - began > options.budget:
                    print(f"{case.name:<38} not measured: over {options.budget:.0f} s")
                    continue
                found = measure(case, neighbour, with_compile=not options.no_compile)
                results["cases"].append(found)
                print(row(found, peak), flush=True)
        finally:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "skills_bench.json").write_text(json.dumps(results, indent=1))
            neighbour.close()
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
