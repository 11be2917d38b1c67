"""What is optimised: the record behind `task.toml`."""

from typing import Literal, TypeAlias

from cuda_tui.records import Record

Form: TypeAlias = Literal["offset", "transposed", "channels_last", "expanded", "sliced"]
FORMS: tuple[Form, ...] = ("offset", "transposed", "channels_last", "expanded", "sliced")


class Task(Record):
    """One task. Paths named `file` are inside the workspace; `source` and `project_root` are the user's, read-only.

    `inputs` names a function of no arguments that returns example inputs: a list or tuple (positional), a mapping
    (keyword), or a pair of both. `init` names one that returns constructor arguments in the same forms.
    """

    name: str
    file: str = "model.py"
    class_name: str = "Model"
    inputs: str = "get_inputs"
    init: str | None = "get_init_inputs"
    source: str = ""
    project_root: str | None = None  # first on sys.path of the workers, and their working directory
    device: str = "cpu"  # "cpu", "cuda", "cuda:1"
    architectures: tuple[str, ...] = ()  # CUDA targets, "sm_90a"; empty: the attached device's
    library_policy: Literal["open", "vendor", "strict"] = "open"
    mode: Literal["eval", "train"] = "eval"
    draws: int = 5  # fresh seeded inputs per verification
    error_cap: float = 0.01  # the task's own limit on ‖c−r‖/‖r−mean(r)‖, never widened by the product
    time_limit_s: float = 300.0  # of one stage in a worker
    link: tuple[str, ...] = ()  # libraries to link: "cublas", "cudnn"
    forms: tuple[Form, ...] = FORMS  # of inputs that are verified besides the usual one
