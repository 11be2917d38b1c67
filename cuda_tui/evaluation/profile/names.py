"""Names of kernels: as ptxas has them (mangled or not), as profilers print them, and whether two mean the same one."""

import re
from collections.abc import Iterable

from cuda_tui.evaluation.report import BuildReport

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|_GLOBAL__N_\w+")
_CAST = re.compile(r"\((?:unsigned )?(?:bool|char|short|int|long|unsigned int|unsigned long)\)(?=[-\d])")
_LAMBDA = re.compile(r"\[lambda\((.*?)\) \(instance (\d+)\)\]")
# Libraries whose kernels a candidate may instantiate as well: there only the whole signature tells whose it is.
_SHARED = ("at::", "cub::", "cutlass::", "cute::", "thrust::", "cublas", "cudnn", "c10::")


def plain(name: str) -> str:
    """The name with its namespaces, without return type, template arguments and parameters."""
    if name.startswith("_Z"):
        return _from_mangled(name)
    text = _ANONYMOUS.sub("@", name)
    kept, depth = [], 0
    for letter in text:
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif depth == 0:
            if letter == "(":
                break
            kept.append(letter)
    return "".join(kept).strip().rpartition(" ")[2]


def base(name: str) -> str:
    """The last part of the plain name, as ncu's name filter has it."""
    return plain(name).rpartition("::")[2]


def _from_mangled(name: str) -> str:
    """The identifiers of an Itanium name up to its template arguments; enough to recognise a kernel."""
    rest = name.removeprefix("_Z").removeprefix("N")
    parts = []
    while match := re.match(r"\d+", rest):
        size, rest = int(match.group()), rest[match.end() :]
        part, rest = rest[:size], rest[size:]
        parts.append("@" if part.startswith("_GLOBAL__N_") else part)
        if not name.startswith("_ZN"):
            break
    return "::".join(parts) or name


def signature(name: str) -> str:
    """The whole name in one spelling, for comparing.

    Demanglers differ in blanks, the place of const, the return type, lambdas, and literals (`(int)4` and `4`, `3ul`
    and `(unsigned long)3`, `false` and `(bool)0`).
    """
    text = _CAST.sub("", _ANONYMOUS.sub("@", name)).removeprefix("void ")
    text = _LAMBDA.sub(r"{lambda(\1)#\2}", text)
    text = re.sub(r"\bconst\b|(?<=\d)[uUlL]+\b", "", text)
    text = re.sub(r"\bfalse\b", "0", re.sub(r"\btrue\b", "1", text))
    return re.sub(r"\s+", "", text)


class OwnKernels:
    """The kernels that a candidate's own library defines, as the build's resources list them."""

    def __init__(self, names: Iterable[str]) -> None:
        known = tuple(names)
        self._signatures = {signature(name) for name in known}
        self._plain = {plain(name) for name in known}

    @classmethod
    def of(cls, build: BuildReport | None) -> "OwnKernels":
        """Of a build; none without one."""
        return cls(item.kernel for item in build.resources) if build is not None else cls(())

    def __contains__(self, name: str) -> bool:
        if signature(name) in self._signatures:
            return True
        found = plain(name)
        return found in self._plain and not found.startswith(_SHARED)

    def __bool__(self) -> bool:
        return bool(self._plain)


# Kernels of libraries whose own name says nothing: what they were made for stands in their template arguments.
_GENERIC = ("cutlass::", "at::native::")
_TELLING = re.compile(
    r"\b(?:(?:cutlass|sm)\d*_\w{8,}?(?=_align\d+|\W)|(?![AB]Unary)\w+(?:Functor\w*|Ops)\b"
    r"|\w+(?<!elementwise)(?<!reduce)_kernel(?:_cuda|_impl)?(?=\())"
)


def shown(name: str, width: int = 60) -> str:
    """A kernel's name as a reader wants it: no parameters, and template arguments where they fit.

    Of a library's generic kernel the part of its arguments that tells what it does: "cutlass_80_simt_sgemm_256x128".
    """
    if name.startswith("_Z"):
        return _from_mangled(name)
    text = name.removeprefix("void ")
    whole = text[: _end_of_name(text)].strip()
    if whole.startswith(_GENERIC) and (telling := _TELLING.search(whole.partition("<")[2])):
        return telling.group() if whole.startswith("cutlass::") else f"{plain(name)}<{telling.group()}>"
    return whole if len(whole) <= width else plain(name).replace("@::", "")


def _end_of_name(text: str) -> int:
    """Where its parameters begin."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not text.startswith("(anonymous namespace)", place):
            return place
    return len(text)
