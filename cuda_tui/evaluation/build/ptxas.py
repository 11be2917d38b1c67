"""What `ptxas -v` says of each kernel: registers, shared memory, stack and spills."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from cuda_tui.evaluation.report import KernelResources

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<architecture>[^']+)'")
_STACK = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<store>\d+) bytes spill stores, (?P<load>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")


def parse(lines: Iterable[str]) -> tuple[KernelResources, ...]:
    """One record for each kernel and architecture, in the order of the log. Names stay mangled."""
    found: list[KernelResources] = []
    entry, stack = None, None
    for line in lines:
        if match := _ENTRY.search(line):
            entry, stack = match, None
        elif match := _STACK.search(line):
            # A device function that was not inlined has a stack line of its own, under another name.
            stack = stack or match
        elif (match := _USED.search(line)) and entry is not None:
            shared = _SHARED.search(line)
            found.append(
                KernelResources(
                    kernel=entry["name"],
                    architecture=entry["architecture"],
                    registers=int(match["registers"]),
                    static_shared_bytes=int(shared["bytes"]) if shared else 0,
                    stack_bytes=int(stack["stack"]) if stack else 0,
                    spill_store_bytes=int(stack["store"]) if stack else 0,
                    spill_load_bytes=int(stack["load"]) if stack else 0,
                )
            )
            entry, stack = None, None
    return tuple(found)


def demangled(resources: Sequence[KernelResources]) -> tuple[KernelResources, ...]:
    """The same with names as the source has them, where the machine has c++filt."""
    program = shutil.which("c++filt") or shutil.which("cu++filt")
    if program is None or not resources:
        return tuple(resources)
    text = "\n".join(item.kernel for item in resources)
    answer = subprocess.run([program], input=text, capture_output=True, text=True, timeout=10, check=False)
    names = answer.stdout.splitlines()
    if answer.returncode != 0 or len(names) != len(resources):
        return tuple(resources)
    return tuple(
        KernelResources(
            kernel=name,
            architecture=item.architecture,
            registers=item.registers,
            static_shared_bytes=item.static_shared_bytes,
            stack_bytes=item.stack_bytes,
            spill_store_bytes=item.spill_store_bytes,
            spill_load_bytes=item.spill_load_bytes,
        )
        for name, item in zip(names, resources, strict=True)
    )
