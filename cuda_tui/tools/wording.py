"""Builds, verdicts, profiles and traces as a model should read them: one line first, then only what it can act on."""

from typing import Any

from cuda_tui.evaluation.profile.names import shown
from cuda_tui.evaluation.profile.reading import first_look
from cuda_tui.evaluation.profile.sanitizer import Checked, Finding
from cuda_tui.evaluation.profile.sass import Disassembly, Kernel
from cuda_tui.evaluation.report import (
    BuildReport,
    Ceiling,
    Counters,
    KernelResources,
    KernelRow,
    Measured,
    NotMeasured,
    OutputCheck,
    Profile,
    Ratio,
    Report,
    Trial,
    VerifyReport,
)
from cuda_tui.words import counted

FIRST_ERRORS = 5
WORST_SHOWN = 3
ROWS = 20
GAPS = 3
KERNELS = 3


def build_text(build: BuildReport) -> str:
    """A build in a few lines: the first distinct errors, or what was compiled."""
    where = f"full log: {build.log}" if build.log else ""
    if not build.succeeded:
        errors = [_diagnostic(item.place, item.message, item.context) for item in build.errors[:FIRST_ERRORS]]
        more = len(build.errors) - len(errors)
        rest = [f"[{more} more errors]"] if more > 0 else []
        return _lines(f"BUILD FAILED for {build.target} in {build.seconds:.1f} s", *errors, *rest, where)
    warned = f", {build.warnings} warnings" if build.warnings else ""
    head = f"built for {build.target} in {build.seconds:.1f} s: {len(build.compiled)} compiled, "
    head += f"{len(build.cached)} up to date{warned}"
    return _lines(head, *map(_resources, build.resources), *build.vectorised[:ROWS], where)


def _diagnostic(place: str, message: str, context: tuple[str, ...]) -> str:
    return "\n".join([f"{place}: error: {message}", *context])


def _resources(item: KernelResources) -> str:
    spilled = item.spill_store_bytes + item.spill_load_bytes
    spills = f", SPILLS {spilled} bytes" if spilled else ""
    shared = f", {item.static_shared_bytes} bytes shared" if item.static_shared_bytes else ""
    return f"{item.kernel} [{item.architecture}]: {item.registers} registers{shared}{spills}"


def report_text(report: Report) -> str:
    """A verdict in a few lines."""
    code = f"({report.code.value})" if report.code is not None else ""
    parts = [f"{report.verdict.value}{code}: {report.message}"]
    if report.build is not None and not report.build.succeeded:
        parts.append(build_text(report.build))
    if report.verify is not None:
        parts += _verify_lines(report.verify)
    match report.performance:
        case Measured() as measured:
            parts += _measured_lines(measured)
            parts.append(f"milestone {report.milestone.value} of 3")
        case NotMeasured(reason=reason):
            parts.append(f"not measured: {reason}")
    parts += [f"flag {flag.code}: {flag.message}" for flag in report.flags]
    return _lines(*parts)


def _verify_lines(verify: VerifyReport) -> list[str]:
    passed = sum(trial.passed for trial in verify.trials)
    head = f"{passed} of {len(verify.trials)} trials passed, {verify.tensors_compared} tensors compared"
    skipped = [f"not compared: {', '.join(verify.not_compared)}"] if verify.not_compared else []
    failed = next((trial for trial in verify.trials if not trial.passed), None)
    return [head, *skipped, *verify.form_lines, *(_trial_lines(failed) if failed else [])]


def _trial_lines(trial: Trial) -> list[str]:
    bad = [check for check in trial.checks if not check.passed]
    return [f"first failed trial: {trial.name}: {trial.reason}", *(line for check in bad for line in _check(check))]


def _check(check: OutputCheck) -> list[str]:
    head = f"{check.output} {check.dtype}{list(check.shape)}: error {_number(check.error)}, limit {check.limit:.3g}"
    eager = f", eager itself {_number(check.eager_error)}" if check.eager_error is not None else ""
    worst = [
        f"  at {list(item.index)}: expected {_number(item.expected)}, got {_number(item.actual)}"
        for item in check.worst[:WORST_SHOWN]
    ]
    return [head + eager, *([f"  {check.reason}"] if check.reason else []), *worst]


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _measured_lines(measured: Measured) -> list[str]:
    rows = [f"{'':24}{'median us':>12}{'spread':>9}  ratio [95%]"]
    rows.append(f"{'candidate':24}{measured.candidate.median_us:>12.2f}{measured.candidate.spread:>9.1%}")
    for timing in measured.baselines:
        ratio = measured.ratio_to(timing.name)
        shown = ratio_text(ratio) if ratio else "-"
        rows.append(f"{timing.name:24}{timing.median_us:>12.2f}{timing.spread:>9.1%}  {shown}")
    rows += [f"{item.name}: unavailable: {item.reason}" for item in measured.unavailable]
    headline = measured.headline
    rows.append(f"against the fastest baseline ({headline.baseline}): {ratio_text(headline)}; {measured.device}")
    return rows


def ratio_text(ratio: Ratio) -> str:
    """ "1.23x [1.21, 1.25] faster"."""
    return f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}] {ratio.outcome.value}"


def profile_text(profile: Profile) -> str:
    """What to look at first, then a profile's table, the largest share first."""
    rows = [first_look(profile), _profile_head(profile)]
    if profile.rows:
        rows.append(f"{'share':>7}{'us':>11}{'calls':>7}  what")
    rows += [_profile_row(row) for row in sorted(profile.rows, key=lambda row: -row.share)[:ROWS]]
    if profile.timeline is not None:
        gaps = profile.timeline.gaps[:GAPS]
        rows += [f"idle {gap.us:.1f} us between {shown(gap.after)} and {shown(gap.before)}" for gap in gaps]
    if profile.floor_us and profile.timeline is None:
        what = "bytes" if profile.floor_bound == "memory" else "FLOP"
        rows.append(f"the call's {what} alone take {profile.floor_us:.1f} us at the measured ceilings (analytic)")
    return _lines(*rows, _ceilings(profile), *profile.notes)


def _profile_head(profile: Profile) -> str:
    line = profile.timeline
    if line is None:
        return f"{profile.subject}: {profile.total_us:.1f} us a call" if profile.total_us else f"{profile.subject}:"
    return (
        f"{profile.subject}: {line.busy_us:.1f} us a call on the GPU, {line.wall_us:.1f} us as called "
        f"(GPU busy {line.busy_share:.0%}, {line.launches} launches, {line.copies} copies)"
    )


def _profile_row(row: KernelRow) -> str:
    facts = ["authored" if row.authored else row.operator, row.bound and f"{row.bound}-bound"]
    facts += [f"{row.bytes_moved / 1e6:.2f} MB" if row.bytes_moved else ""]
    facts += [f"{row.roofline_share:.0%} of roofline" if row.roofline_share is not None else ""]
    facts += [*_launch_facts(row), row.evidence]
    what = f"{shown(row.name)} ({', '.join(filter(None, facts))})"
    counters = _counters(row.counters) if row.counters is not None else ""
    # What has no time, since none was recorded, must not read as one that took none.
    timed = f"{row.share:>7.1%}{row.total_us:>11.1f}{row.calls:>7}" if row.total_us else f"{'-':>7}{'-':>11}{'-':>7}"
    return _lines(f"{timed}  {what}", counters)


def _launch_facts(row: KernelRow) -> list[str]:
    facts = [f"{row.grid} x {row.block} threads" if row.grid and row.block else ""]
    facts.append(f"{row.registers} registers" if row.registers else "")
    if (found := row.occupancy) is not None:
        limit = f" by {found.limiter}" if found.limiter else ""
        reached = f", {found.achieved:.0%} achieved" if found.achieved is not None else ""
        waves = f", {found.waves:.1f} waves" if found.waves is not None else ""
        supposed = f" ({found.evidence.partition(', ')[2]})" if ", " in found.evidence else ""
        facts.append(f"occupancy {found.theoretical:.0%}{limit}{reached}{waves}{supposed}")
    return facts


def _counters(found: Counters) -> str:
    """ncu's shares in the order in which to read them."""
    shares = {
        "memory": found.memory_share,
        "compute": found.compute_share,
        "DRAM": found.dram_share,
        "L1 hit": found.l1_hit,
        "L2 hit": found.l2_hit,
    }
    parts = [f"{name} {share:.0%}" for name, share in shares.items() if share is not None]
    sectors = {"load": found.sectors_per_load, "store": found.sectors_per_store}
    parts += [f"{value:.1f} sectors a {way}" for way, value in sectors.items() if value]
    parts += _traffic(found)
    stalls = ", ".join(f"{stall.reason} {stall.share:.0%}" for stall in found.stalls)
    return f"{'':27}ncu: {', '.join(parts)}" + (f"; stalls: {stalls}" if stalls else "")


def _traffic(found: Counters) -> list[str]:
    """What went through device memory; stores that had not left L2 at the kernel's end are said apart."""
    moved = {"read": found.dram_read_bytes, "written": found.dram_write_bytes}
    parts = [f"{count / 1e6:.1f} MB {way}" for way, count in moved.items() if count is not None]
    written, stored = found.dram_write_bytes, found.stored_bytes
    if written is not None and stored is not None and stored > 1.1 * written:
        parts.append(f"{stored / 1e6:.1f} MB stored, of which the rest was still in L2 or stored over")
    return parts


def _ceilings(profile: Profile) -> str:
    if profile.ceilings:
        parts = [_ceiling(item) for item in profile.ceilings]
        return f"ceilings measured on this device: {', '.join(parts)}"
    if profile.peak_bandwidth_gbs and profile.peak_gflops:
        return f"peaks: {profile.peak_bandwidth_gbs:.0f} GB/s, {profile.peak_gflops:.0f} GFLOP/s"
    return ""


def _ceiling(item: Ceiling) -> str:
    if item.name == "copy":
        return f"copy {item.value:.0f} GB/s"
    return f"{item.name} {item.value / 1e3:.0f} TFLOP/s"


def checked_text(found: Checked) -> str:
    """A check of compute-sanitizer: the first distinct findings, or that there are none, or why it did not run."""
    if not found.ran:
        return f"{found.check} could not be done: {found.problem}"
    if not found.findings:
        return f"{found.check}: nothing found on one call (other inputs may still fail)"
    rows = [f"{found.check}: {_how_many(found)}"]
    rows += [_finding(item, several=len(found.findings) > 1) for item in found.findings[:FIRST_ERRORS]]
    more = len(found.findings) - FIRST_ERRORS
    return _lines(*rows, f"[{more} more distinct]" if more > 0 else "")


def _how_many(found: Checked) -> str:
    """The tool counts every thread that met an error, and describes only the first of them."""
    described = sum(item.times for item in found.findings)
    distinct = len(found.findings)
    total = counted(found.errors, "error")
    if found.errors <= 1:
        return total
    if described >= found.errors:
        return f"{total}, all of one kind at one place" if distinct == 1 else f"{total}, {distinct} distinct"
    if described == 1:
        return f"{total}, one of them described"
    same = "all of one kind at one place" if distinct == 1 else f"{distinct} distinct"
    return f"{total}; the {described} that it describes are {same}"


def _finding(item: Finding, *, several: bool) -> str:
    where = f"{item.kernel} at {item.place}" if item.kernel and item.place else item.kernel or item.place or "?"
    times = f", {item.times} times" if several and item.times > 1 else ""
    extra = "; ".join(filter(None, (item.thread, item.detail)))
    return f"{where}: {item.kind}{times}" + (f" ({extra})" if extra else "")


def sass_text(found: Disassembly) -> str:
    """Machine code: counts by class, the lines with most instructions, and one line's excerpt."""
    if found.problem:
        names = f"kernels here: {', '.join(found.others[:ROWS])}" if found.others else ""
        return _lines(found.problem, names)
    rows = [line for kernel in found.kernels[:KERNELS] for line in _sass_kernel(kernel)]
    left = [kernel.name for kernel in found.kernels[KERNELS:]] + list(found.others)
    return _lines(*rows, f"not shown: {', '.join(left[:ROWS])}" if left else "")


def _sass_kernel(kernel: Kernel) -> list[str]:
    head = f"{kernel.name} [{kernel.architecture}]: {counted(kernel.instructions, 'instruction')}; "
    rows = [head + _classes(kernel.classes)]
    rows += [f"  {line.place}: {line.instructions}; {_classes(line.classes)}" for line in kernel.lines]
    if not kernel.excerpt:
        return [*rows, "no code comes from that line"] if not kernel.excerpt_of else rows
    return [*rows, f"code of {kernel.excerpt_of}:", *(f"    {text}" for text in kernel.excerpt)]


def _classes(classes: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in classes.items()) or "index arithmetic and moves only"


def trace_text(trace: dict[str, Any]) -> str:
    """The operators in order: shapes, bytes, FLOP and where they stand in the source."""
    totals = trace.get("totals", {})
    head = (
        f"{len(trace.get('nodes', ()))} operators on {trace.get('device')}, mode {trace.get('mode')}: "
        f"{totals.get('bytes_read', 0)} B read, {totals.get('bytes_written', 0)} B written, "
        f"{totals.get('flop', 0)} FLOP"
    )
    inputs = [f"input {_path(item)}: {_tensor(item)}" for item in trace.get("inputs", ())]
    parameters = [f"{item['kind']} {item['target']}: {_tensor(item)}" for item in trace.get("parameters", ())]
    nodes = [_node(node) for node in trace.get("nodes", ())]
    return _lines(head, *inputs, *parameters, *nodes)


def _path(item: dict[str, Any]) -> str:
    return ".".join(str(part) for part in item.get("path", ()))


def _tensor(item: dict[str, Any]) -> str:
    return f"{item['dtype']}{item['shape']}"


def _node(node: dict[str, Any]) -> str:
    results = ", ".join(_tensor(item) for item in node["outputs"])
    if node["view"]:
        return f"{node['name']} = {node['op']} -> {results} (view)  {node['source']}"
    moved = f"{node['bytes_read']} + {node['bytes_written']} B, {node['flop']} FLOP"
    return f"{node['name']} = {node['op']} -> {results}  {moved}  {node['source']}"


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
