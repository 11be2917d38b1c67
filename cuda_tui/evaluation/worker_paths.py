"""How a file is named as a module; the workers have the same rule (`worker.loading.package_of`)."""

from pathlib import Path


def package_of(path: Path) -> tuple[str, str]:
    """The folder to put on sys.path and the dotted module name, by the chain of `__init__.py` above the file."""
    folder = path.resolve().parent
    parts = [path.stem]
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return str(folder), ".".join(parts)
