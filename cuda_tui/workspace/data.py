"""Where the folders live that travel with the product: `workspace_template`, `skills`, `examples`."""

from pathlib import Path

import cuda_tui
from cuda_tui.errors import InfrastructureError


def data_folder(name: str) -> Path:
    """The folder in an installed wheel (`cuda_tui/_data/NAME`), else in the clone. Raises InfrastructureError."""
    package = Path(cuda_tui.__file__).parent
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise InfrastructureError(
        f"The folder {name} is missing from this installation ({package}).", hint="Install cuda-tui again."
    )
