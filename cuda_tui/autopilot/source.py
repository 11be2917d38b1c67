"""The user's module source with its class renamed and its forward replaced; what nothing needs any more is left out."""

import ast
from dataclasses import dataclass

from cuda_tui.autopilot.ir import Unfusible


@dataclass(frozen=True)
class Signature:
    """forward's parameters as text, its argument names, and the constant defaults of arguments."""

    text: str
    defaults: dict[str, str]
    names: tuple[str, ...]


class Source:
    """A module file that holds the class to optimise."""

    def __init__(self, text: str, class_name: str) -> None:
        self._lines = text.splitlines()
        self._tree = ast.parse(text)
        self._class = next(
            (item for item in self._tree.body if isinstance(item, ast.ClassDef) and item.name == class_name), None
        )
        if self._class is None:
            raise Unfusible(f"model.py does not define the class {class_name} itself")
        self._forward = self._method("forward")

    def _method(self, name: str) -> ast.FunctionDef:
        assert self._class is not None
        found = next(
            (item for item in self._class.body if isinstance(item, ast.FunctionDef) and item.name == name), None
        )
        if found is None:
            raise Unfusible(f"{self._class.name} does not define {name} itself")
        return found

    @property
    def signature(self) -> Signature:
        """Of forward."""
        args = self._forward.args
        listed = [*args.posonlyargs, *args.args]
        pairs = list(zip(listed[len(listed) - len(args.defaults) :], args.defaults, strict=True))
        pairs += [
            (arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None
        ]
        constants = {arg.arg: ast.unparse(value) for arg, value in pairs if isinstance(value, ast.Constant)}
        every = [*listed, *args.kwonlyargs, *(extra for extra in (args.vararg, args.kwarg) if extra)]
        returns = f" -> {ast.unparse(self._forward.returns)}" if self._forward.returns else ""
        return Signature(f"({ast.unparse(args)}){returns}", constants, tuple(arg.arg for arg in every))

    def rewritten(self, forward: list[str], *, imports: list[str], docstring: str) -> str:
        """The new file. `forward` is the body, not indented."""
        assert self._class is not None
        klass = self._new_class(forward)
        kept = self._kept_statements(ast.parse("\n".join(klass)))
        parts = [f'"""{docstring}"""', ""]
        future = [item for item in kept if isinstance(item, ast.ImportFrom) and item.module == "__future__"]
        plain = [item for item in kept if isinstance(item, (ast.Import, ast.ImportFrom)) and item not in future]
        parts += [line for item in future for line in self._text(item)]
        written = {line for item in plain for line in self._text(item)}
        parts += [line for item in plain for line in self._text(item)]
        parts += [line for line in imports if line not in written]
        for item in kept:
            if item not in future and item not in plain:
                parts += [*_gap(item), *self._text(item)]
        return "\n".join([*parts, "", "", *klass, ""])

    def _text(self, item: ast.stmt) -> list[str]:
        decorators = getattr(item, "decorator_list", [])
        first = min([item.lineno, *(decorator.lineno for decorator in decorators)])
        assert item.end_lineno is not None
        return self._lines[first - 1 : item.end_lineno]

    def _new_class(self, forward: list[str]) -> list[str]:
        """The class as text: renamed, with the new forward, without helpers that only the old forward used."""
        assert self._class is not None
        head = self._renamed(self._lines[self._class.lineno - 1 : self._class.body[0].lineno - 1])
        first = self._class.body[0]
        if not head:  # a class on one line is written out again
            head = ast.unparse(self._class).splitlines()[:1]
        lines = list(head)
        dropped = self._helpers_of_forward()
        for item in self._class.body:
            if item is self._forward:
                lines += [
                    "",
                    f"    def forward{self.signature.text}:",
                    *(f"        {line}".rstrip() for line in forward),
                ]
            elif not (isinstance(item, ast.FunctionDef) and item.name in dropped):
                gap = [""] if isinstance(item, (ast.FunctionDef, ast.ClassDef)) and item is not first else []
                lines += [*gap, *self._renamed(self._text(item))]
        lines[0] = lines[0].replace(f"class {self._class.name}", "class ModelNew", 1)
        return lines

    def _renamed(self, lines: list[str]) -> list[str]:
        """`super(Model, self)` and its like follow the new name."""
        assert self._class is not None
        name = self._class.name
        text = "\n".join(lines)
        return text.replace(f"super({name},", "super(ModelNew,").replace(f"{name}.", "ModelNew.").splitlines()

    def _helpers_of_forward(self) -> set[str]:
        """Methods that are reached from forward and from nothing that stays."""
        assert self._class is not None
        methods = {item.name: item for item in self._class.body if isinstance(item, ast.FunctionDef)}
        reached = _reach({"forward"}, methods)
        kept = {name for name in methods if name not in reached or (name.startswith("__") and name.endswith("__"))}
        return reached - _reach(kept, methods) - kept - {"forward"}

    def _kept_statements(self, klass: ast.AST) -> list[ast.stmt]:
        """Top-level statements that the new class needs, in their order."""
        wanted = _names(klass)
        statements = [item for item in self._tree.body if item is not self._class and not _is_docstring(item)]
        kept: set[int] = set()
        grew = True
        while grew:
            grew = False
            for index, item in enumerate(statements):
                if index not in kept and (_defines(item) & wanted or _is_future(item)):
                    kept.add(index)
                    wanted |= _names(item)
                    grew = True
        return [statements[index] for index in sorted(kept)]


def _reach(start: set[str], methods: dict[str, ast.FunctionDef]) -> set[str]:
    found: set[str] = set()
    stack = list(start)
    while stack:
        name = stack.pop()
        if name in methods and name not in found:
            found.add(name)
            stack.extend(item.attr for item in ast.walk(methods[name]) if isinstance(item, ast.Attribute))
    return found


def _names(tree: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(tree) if isinstance(item, ast.Name)}


def _defines(item: ast.stmt) -> set[str]:
    match item:
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            return {item.name}
        case ast.Import() | ast.ImportFrom():
            return {(alias.asname or alias.name).split(".")[0] for alias in item.names}
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.If() | ast.Try() | ast.With() | ast.For():
            return {
                name.id for name in ast.walk(item) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
        case _:
            return set()


def _is_docstring(item: ast.stmt) -> bool:
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)


def _is_future(item: ast.stmt) -> bool:
    return isinstance(item, ast.ImportFrom) and item.module == "__future__"


def _gap(item: ast.stmt) -> list[str]:
    return ["", ""] if isinstance(item, (ast.FunctionDef, ast.ClassDef)) else [""]
