"""A static look at the candidate's Python and C++: it flags, behaviour rejects. Comments never matter."""

import ast
import re
from collections.abc import Collection
from pathlib import Path

from cuda_tui.evaluation.report import Flag

CALLS = {
    "compile": "calls torch.compile or compile: the baselines measure that; in a candidate it is switched off",
    "exec": "runs code from text",
    "eval": "runs code from text",
    "_getframe": "walks the caller's frames",
    "get_objects": "walks all objects of the process",
    "get_referrers": "walks all objects of the process",
}
BUILTINS = frozenset({"compile", "exec", "eval"})
MODULES = {
    "gc": "imports gc",
    "inspect": "imports inspect",
    "ctypes": "imports ctypes",
    "subprocess": "starts processes",
    "threading": "starts threads",
    "multiprocessing": "starts processes",
    "model": "imports the reference",
}
LIBRARY_CALLS = re.compile(r"\bat::_?(?:ops::)?(matmul|mm|bmm|addmm|linear|conv\w*|softmax|layer_norm|sdpa)\b")


def scan(folder: Path, *, protected: Collection[str] = ()) -> tuple[Flag, ...]:
    """Flags for the Python files beside `model_new.py` and the sources in `kernels/`, less those that nobody edits."""
    candidates = [path for path in sorted(folder.glob("*.py")) if path.name not in protected]
    flags = [flag for path in candidates for flag in _python(path, folder)]
    for path in sorted((folder / "kernels").rglob("*")) if (folder / "kernels").is_dir() else []:
        if path.suffix in {".cpp", ".cc", ".cu", ".cuh", ".h"}:
            flags += _native(path, folder)
    return tuple(flags)


def _python(path: Path, folder: Path) -> list[Flag]:
    name = str(path.relative_to(folder))
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError as error:
        return [Flag(code="SYNTAX", message=error.msg, file=name, line=error.lineno)]
    flags: list[Flag] = []
    for node in ast.walk(tree):
        found = _describe(node)
        if found is not None:
            code, message = found
            flags.append(Flag(code=code, message=message, file=name, line=getattr(node, "lineno", None)))
    return flags


def _describe(node: ast.AST) -> tuple[str, str] | None:
    if isinstance(node, ast.Try) and any(_holds_return(handler) for handler in node.handlers):
        return "FALLBACK", "an exception handler computes or returns a result"
    if isinstance(node, ast.Import):
        return next((_module(alias.name) for alias in node.names if _module(alias.name)), None)
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return _module(node.module or "")
    if isinstance(node, ast.Call):
        return _call(node.func)
    if isinstance(node, ast.Assign):
        return next((_patched(target) for target in node.targets if _patched(target)), None)
    return None


def _call(function: ast.expr) -> tuple[str, str] | None:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    # `model.eval()` and `re.compile()` are not the builtins.
    if isinstance(function, ast.Attribute) and name in BUILTINS and ast.unparse(function) != "torch.compile":
        return None
    return ("CALL", f"{name}: {CALLS[name]}") if name in CALLS else None


def _holds_return(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(handler))


def _module(name: str) -> tuple[str, str] | None:
    top = name.partition(".")[0]
    if top in MODULES:
        return "REFERENCE_USED" if top == "model" else "IMPORT", MODULES[top]
    return None


def _patched(target: ast.expr) -> tuple[str, str] | None:
    """An assignment onto an attribute of an imported module such as `torch.allclose`."""
    root: ast.expr = target
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(target, ast.Attribute) and isinstance(root, ast.Name) and root.id in {"torch", "time", "sys", "os"}:
        return "PATCH", f"assigns to {ast.unparse(target)}"
    return None


def _native(path: Path, folder: Path) -> list[Flag]:
    text = _without_comments(path.read_text(encoding="utf-8", errors="replace"))
    flags = []
    for number, line in enumerate(text.split("\n"), start=1):
        if found := LIBRARY_CALLS.search(line):
            message = f"calls the library operator {found.group(0)}"
            flags.append(Flag(code="LIBRARY", message=message, file=str(path.relative_to(folder)), line=number))
    return flags


OPERATORS = re.compile(r"\b(?:CUDA_TUI_IMPL|\w*TORCH_LIBRARY_IMPL)\s*\((?:[^)]*,)?\s*CUDA\b|\bPYBIND11_MODULE\b")
GUARDS = re.compile(r"\b(?:\w*DeviceGuard|CUDAGuard|cudaSetDevice)\b")


def unguarded(folder: Path, *, gpus: int) -> tuple[Flag, ...]:
    """Files that define CUDA operators without selecting their tensors' device, on a machine where it cannot be tried.

    With two or more GPUs verification calls the candidate with another one current, and that decides.
    """
    sources = sorted((folder / "kernels").rglob("*")) if (folder / "kernels").is_dir() and gpus < 2 else []
    flags = []
    for path in sources:
        if path.suffix in {".cpp", ".cc", ".cu"}:
            text = _without_comments(path.read_text(encoding="utf-8", errors="replace"))
            if (found := OPERATORS.search(text)) and not GUARDS.search(text):
                name, line = str(path.relative_to(folder)), text.count("\n", 0, found.start()) + 1
                message = f"not exercised: one GPU; no device guard found in {name}"
                flags.append(Flag(code="GUARD", message=message, file=name, line=line))
    return tuple(flags)


def _without_comments(text: str) -> str:
    """The text with comments blanked and line numbers kept."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found.group(0)), text, flags=re.DOTALL)
