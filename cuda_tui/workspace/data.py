"""Where the folders live that travel with the product: `workspace_template`, `skills`, `examples`."""

import importlib.metadata
from pathlib import Path

import cuda_tui
from cuda_tui.errors import InfrastructureError

SOURCE_TREE = "0+source"  # a clone on the path, not installed


def version() -> str:
    """Of the installed package."""
    try:
        return importlib.metadata.version("cuda-tui")
    except importlib.metadata.PackageNotFoundError:
        return SOURCE_TREE


def data_folder(name: str) -> Path:
    """The folder in an installed wheel (`cuda_tui/_data/NAME`), else in the clone. Raises InfrastructureError."""
    package = Path(cuda_tui.__file__).parent
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise InfrastructureError(
        f"The folder {name} is missing from this installation ({package}).", hint="Install cuda-tui again."
    )
