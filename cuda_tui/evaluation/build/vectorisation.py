"""What the C++ compiler says of each loop in the workspace's sources: vectorised, or why not."""

import re
from collections.abc import Iterable
from pathlib import Path

from cuda_tui.evaluation.build.build import Builder, build_folder, task_options
from cuda_tui.evaluation.build.lock import build_lock
from cuda_tui.evaluation.build.plan import Plan, PlannedObject, make_plan
from cuda_tui.workspace.workspace import Workspace

LINES_KEPT = 40
_GCC = re.compile(r"^(?P<place>(?:kernels/)?[^\s/:][^\s:]*:\d+):\d+: (?P<kind>optimized|missed): +(?P<text>.*)$")
_CLANG = re.compile(r"^(?P<place>(?:kernels/)?[^\s/:][^\s:]*:\d+):\d+: remark: (?P<text>.*?) \[-Rpass(?:-\w+)?=.*\]$")
_WORTH = re.compile(r"loop vectorized|couldn't vectorize loop|not vectorized|vectorized loop")


def report(workspace: Workspace, *, builder: Builder) -> tuple[str, ...]:
    """Notes such as `kernels/silu.cpp:10: loop vectorized using 32 byte vectors`, the hot loops' reasons among them.

    Compiles every C++ source once more, about as long as a build without its precompiled header; writes no object.
    """
    options = task_options(builder.options, workspace, env=builder.env)
    with build_lock(build_folder(options, workspace)):
        plan = make_plan(workspace.root, python=builder.python, env=builder.env, options=options, write=True)
        notes = [note for item in plan.objects if not item.cuda for note in _notes_of(item, plan, builder)]
    return tuple(dict.fromkeys(notes))[:LINES_KEPT]


def _notes_of(item: PlannedObject, plan: Plan, builder: Builder) -> list[str]:
    clang = "clang" in Path(plan.tools.cxx).resolve().name
    asked = ["-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize"] if clang else ["-fopt-info-vec-all"]
    argv = [item.command[0], *asked, *item.command[1:], "/dev/null"]
    done = builder.run(argv, cwd=Path(plan.root), env=builder.env, timeout_s=builder.timeout_s, cancel=builder.cancel)
    return parse(done.output.splitlines())


def parse(lines: Iterable[str]) -> list[str]:
    """The notes on loops in the workspace's own files. A loop that was vectorised has no `missed` note left."""
    vectorised: dict[str, str] = {}
    missed: dict[str, list[str]] = {}
    for line in lines:
        found = _GCC.match(line) or _CLANG.match(line)
        if found is None or not _WORTH.search(found["text"]):
            continue
        text = found["text"].strip()
        if text.startswith(("loop vectorized", "vectorized loop")):
            vectorised.setdefault(found["place"], text)
        else:
            reasons = missed.setdefault(found["place"], [])
            if text not in reasons:
                reasons.append(text)
    notes = [f"{place}: {text}" for place, text in vectorised.items()]
    for place, reasons in missed.items():
        # "couldn't vectorize loop" only announces the reason that follows it.
        telling = [text for text in reasons if not text.startswith("couldn't")] or reasons
        if place not in vectorised:
            notes.append(f"{place}: {telling[0]}")
    return sorted(notes, key=_place_order)


def _place_order(note: str) -> tuple[str, int]:
    file, line = note.split(":")[:2]
    return file, int(line)
