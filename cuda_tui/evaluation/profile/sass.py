"""Machine code of the built library by kernel and source line, counted by class of instruction."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cuda_tui.evaluation.profile import programs
from cuda_tui.evaluation.profile.names import plain, shown
from cuda_tui.evaluation.profile.solo import Solo
from cuda_tui.records import Record

LIMIT_S = 60.0
EXCERPT_LINES = 24
LINES_SHOWN = 8

_FUNCTION = re.compile(r"^\.text\.(?P<name>\S+):")
_SOURCE = re.compile(
    r'//## File "(?P<file>[^"]+)", line (?P<line>\d+)(?: inlined at "(?P<outer>[^"]+)", line (?P<at>\d+))?'
)
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);?")
# By opcode up to its first point; loads and stores are told apart further by the width of one access.
_CLASSES = {
    "global load": ("LDG",),
    "global store": ("STG",),
    "bulk copy": ("UBLKCP", "UTMALDG", "UTMASTG", "LDGSTS"),
    "shared": ("LDS", "STS", "LDSM", "STSM", "ATOMS"),
    "local (spill or array)": ("LDL", "STL"),
    "tensor core": ("HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA", "DMMA", "QMMA", "UTCHMMA", "UTCQMMA"),
    "fp32": ("FFMA", "FADD", "FMUL", "FFMA2", "FADD2", "FMUL2"),
    "fp16": ("HFMA2", "HADD2", "HMUL2"),
    "fp64": ("DFMA", "DADD", "DMUL"),
    "special function": ("MUFU",),
    "conversion": ("F2F", "F2FP", "I2F", "F2I", "I2FP"),
    "barrier": ("BAR", "SYNCS"),  # BSSY and BSYNC only join again what a branch parted
    "warp barrier": ("WARPSYNC",),
    "fence": ("MEMBAR", "FENCE"),
    "shuffle": ("SHFL",),
    "atomic": ("ATOM", "ATOMG", "RED", "REDG"),
}
_CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes}
_WIDTHS = {"64": 8, "128": 16, "256": 32, "U8": 1, "S8": 1, "U16": 2, "S16": 2}


class LineCount(Record):
    """Instructions that one source line became."""

    place: str  # "kernels/silu.cu:12"
    instructions: int
    classes: dict[str, int]


class Kernel(Record):
    """One kernel's code, counted; `excerpt` is of the line asked for, else of the one that works on most data."""

    name: str
    architecture: str
    instructions: int
    classes: dict[str, int]  # "global load, 16 bytes" to how many instructions
    lines: tuple[LineCount, ...] = ()
    excerpt_of: str = ""
    excerpt: tuple[str, ...] = ()


class Disassembly(Record):
    """What was found for a request; `problem` where nothing could be shown."""

    kernels: tuple[Kernel, ...] = ()
    problem: str = ""
    others: tuple[str, ...] = ()  # kernels of the library that the request did not name


@dataclass
class _Code:
    """A function while it is read: each instruction with the source line it comes from, and its class."""

    name: str
    body: list[tuple[str, str]] = field(default_factory=list)  # (place, text)
    classes: list[str] = field(default_factory=list)


def disassemble(solo: Solo, library: Path, *, kernel: str = "", line: int | None = None) -> Disassembly:
    """The kernels whose name contains `kernel`. Needs cuobjdump and nvdisasm; says which one is missing."""
    runtime = solo.runtime
    found = {name: programs.find(name, env=runtime.environment, python=runtime.python) for name in _TOOLS}
    missing = [programs.absent(name) for name, program in found.items() if program is None]
    if missing:
        return Disassembly(problem="; ".join(missing))
    cuobjdump, nvdisasm = (found[name] or "" for name in _TOOLS)
    # Both in one sandboxed command: what the first extracts lies in a folder of this run only.
    script = (
        'set -e; "$1" -xelf all "$3" >/dev/null; '
        'for cubin in *.cubin; do echo "//cubin $cubin"; "$2" -c -gi "$cubin"; done'
    )
    argv = ["/bin/sh", "-c", script, "sh", cuobjdump, nvdisasm, str(library)]
    read = [library.parent, programs.folder_of(cuobjdump), programs.folder_of(nvdisasm)]
    finished = solo.command(argv, read=read, limit_s=LIMIT_S)
    if finished.timed_out:
        return Disassembly(problem=f"the disassembler did not end in {LIMIT_S:.0f} s and was stopped")
    if finished.returncode != 0:
        last = next((text for text in reversed(finished.output.splitlines()) if text.strip()), "no output")
        return Disassembly(problem=f"the library could not be disassembled: {last.strip()[:300]}")
    return select(finished.output, kernel=kernel, line=line)


_TOOLS = ("cuobjdump", "nvdisasm")


def select(text: str, *, kernel: str, line: int | None) -> Disassembly:
    """The kernels of a disassembly whose name contains `kernel`, with the excerpt of one line each."""
    codes = _functions(text.splitlines())
    if not codes:
        return Disassembly(problem="the library holds no GPU code: kernels are in .cu files")
    chosen = [item for item in codes if kernel in item[1].name or kernel in plain(item[1].name)]
    names = tuple(dict.fromkeys(plain(code.name) for _, code in codes))
    if not chosen:
        return Disassembly(problem=f"no kernel's name contains {kernel!r}", others=names)
    kernels = tuple(_counted(architecture, code, line) for architecture, code in chosen)
    mine = {plain(code.name) for _, code in chosen}
    return Disassembly(kernels=kernels, others=tuple(name for name in names if name not in mine))


class _Reader:
    """Reads `nvdisasm -c -gi` output: functions, the file they are from, and the source line of each instruction."""

    def __init__(self) -> None:
        self.found: list[tuple[str, _Code]] = []
        self._architecture = ""
        self._place = ""
        self._in_places = False  # several lines say where one instruction comes from, the innermost first

    def line(self, text: str) -> None:
        """Take the next line."""
        if text.startswith("//cubin "):
            match = re.search(r"sm_\w+?(?=\.)", text)
            self._architecture = match.group() if match else ""
        elif match := _FUNCTION.match(text):
            self.found.append((self._architecture, _Code(match["name"])))
            self._place = ""
        elif not self.found:
            return
        elif match := _SOURCE.search(text):
            self._source(match)
        elif match := _INSTRUCTION.match(text):
            self._in_places = False
            code = self.found[-1][1]
            words = f"{match['guard'] or ''}{match['opcode']}{match['rest'].rstrip()}"
            code.body.append((self._place, re.sub(r"\s+", " ", words)))
            code.classes.append(class_of(match["opcode"], match["rest"]))

    def _source(self, match: re.Match[str]) -> None:
        """Of a call that was inlined the line in the workspace counts: other people's headers explain nothing."""
        inner = f"{match['file']}:{match['line']}"
        if not self._in_places:
            self._place = _short(inner)
        if match["outer"] and "kernels/" not in inner and "kernels/" not in self._place:
            self._place = _short(f"{match['outer']}:{match['at']}")
        self._in_places = True


def _functions(lines: Iterable[str]) -> list[tuple[str, _Code]]:
    """Each function that has code, with the architecture that its file is for."""
    reader = _Reader()
    for text in lines:
        reader.line(text)
    return [item for item in reader.found if item[1].body]


def _short(place: str) -> str:
    found = place.rfind("kernels/")
    return place[found:] if found >= 0 else place.rpartition("/")[2]


def _counted(architecture: str, code: _Code, line: int | None) -> Kernel:
    places = Counter(place for place, _ in code.body if place)
    lines = tuple(
        LineCount(place=place, instructions=count, classes=_classes(code, place))
        for place, count in places.most_common(LINES_SHOWN)
    )
    wanted = next((place for place in places if line is not None and place.endswith(f":{line}")), None)
    if line is None and places:
        wanted = _telling(code, places)
    excerpt = [text for place, text in code.body if place == wanted] if wanted else []
    if len(excerpt) > EXCERPT_LINES:
        left = len(excerpt) - EXCERPT_LINES
        excerpt = [*excerpt[:EXCERPT_LINES], f"[{left} more instructions of this line]"]
    return Kernel(
        name=shown(code.name),
        architecture=architecture,
        instructions=len(code.body),
        classes=_classes(code, None),
        lines=lines,
        excerpt_of=wanted or "",
        excerpt=tuple(excerpt),
    )


def _classes(code: _Code, place: str | None) -> dict[str, int]:
    chosen = [name for name, (at, _) in zip(code.classes, code.body, strict=True) if place in (None, at)]
    return dict(Counter(filter(None, chosen)).most_common())


_DATA = ("tensor core", "global", "bulk copy", "atomic")


def _telling(code: _Code, places: Counter[str]) -> str:
    """The line with most instructions on matrices, else on global memory, else of any kind; in a tie the longer one."""

    def rank(place: str) -> tuple[int, int, int]:
        counts = _classes(code, place)
        matrix, *memory = (sum(n for name, n in counts.items() if name.startswith(kind)) for kind in _DATA)
        return matrix, sum(memory), places[place]

    return max(places, key=rank)


_MOVES = re.compile(r"\s*\w+, -?RZ(?:\.\w+)?, -?RZ(?:\.\w+)?,")


def class_of(opcode: str, operands: str = "") -> str:
    """ "global load, 16 bytes" of `LDG.E.128.CONSTANT`; empty for index arithmetic, moves and branches.

    ptxas moves constants with an HFMA2 of zeros where that pipe is free: that is no arithmetic.
    """
    parts = opcode.split(".")
    if parts[0] == "HFMA2" and _MOVES.match(operands):
        return ""
    name = _CLASS_OF.get(parts[0], "")
    if parts[0] in ("LDG", "STG", "LDS", "STS", "LDL", "STL"):
        width = next((_WIDTHS[part] for part in parts[1:] if part in _WIDTHS), 4)
        return f"{name}, {width} byte{'s' if width > 1 else ''}"
    if name == "tensor core":
        return f"{name} ({parts[0]})"
    return name
