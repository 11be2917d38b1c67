"""Start the zygote in the user's interpreter: `python .../worker CONTROL_FD`; or one side: `solo REQUEST.json`.

The package is registered under a name of its own, so that neither our folder on sys.path nor a module of the
user's with a name like ours can get in the way.
"""

import importlib.util
import os
import sys

NAME = "cuda_tui_worker"


def main() -> None:
    """Import this folder as a package and serve."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)
    if sys.argv[1] == "solo":
        sys.exit(importlib.import_module(NAME + ".solo").main(sys.argv[2]))
    zygote = importlib.import_module(NAME + ".zygote")
    zygote.serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
