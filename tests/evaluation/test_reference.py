"""A reference that cannot serve is said so before any candidate is looked at: what, where, and what to do."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cuda_tui.errors import ReferenceFault
from cuda_tui.evaluation.reference import Reference
from cuda_tui.evaluation.runtime import Interpreter, Runtime
from cuda_tui.workspace.task import Task

pytestmark = pytest.mark.slow

Start = Callable[[str], Reference]
HEAD = "import torch\n\n\n"
INPUTS = "\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"


def net(forward: str, parts: str = "") -> str:
    """A model; its forward is line 10."""
    return (
        f"{HEAD}class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {parts or 'pass'}\n\n    def forward(self, x):\n        {forward}\n"
    )


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory, interpreter: Interpreter) -> Iterator[Runtime]:
    found = Runtime(
        root=tmp_path_factory.mktemp("reference"),
        task=Task(name="reference", time_limit_s=20.0),
        interpreter=interpreter,
    )
    yield found
    found.close()


@pytest.fixture
def start(runtime: Runtime, tmp_path: Path) -> Iterator[Start]:
    """start(source of net.py) -> Reference, examined."""
    started: list[Reference] = []

    def call(source: str) -> Reference:
        (tmp_path / "net.py").write_text(source)
        started.append(Reference(runtime, tmp_path / "net.py"))
        started[-1].start()
        return started[-1]

    yield call
    for reference in started:
        reference.close()


FAULTS = [
    ("raises", net("raise ValueError('no such axis')") + INPUTS, r"net.py: ValueError: no such axis \(.*net.py:10\)"),
    ("fails in torch", net("return x @ x[:3]") + INPUTS, r"net.py: RuntimeError: .*\(.*net.py:10\)"),
    ("random", net("return torch.nn.functional.dropout(x, 0.5)") + INPUTS, r"is random: .*at net.py:10"),
    ("random by rand", net("return x + torch.rand(64, 64)") + INPUTS, r"is random: rand at net.py:10"),
    ("nothing", net("return None") + INPUTS, "returns nothing to compare"),
    ("only plain values", net("return {'a': 1, 'b': 'x'}") + INPUTS, "returns nothing to compare"),
    ("needs a GPU", net("return self.l(x)", "self.l = torch.nn.Linear(64, 64).cuda()") + INPUTS, r"net.py:7"),
    ("inputs raise", net("return x") + "\n\ndef get_inputs():\n    return [1 / 0]\n", r"ZeroDivisionError.*net.py:14"),
    ("inputs cannot travel", net("return x") + "\n\ndef get_inputs():\n    return [object()]\n",
     r"inputs\[0\]\[0\] \(object\)"),
    ("import fails", "import no_such_package\n", "No module named 'no_such_package'"),
    ("syntax", HEAD + "def f(:\n", r"SyntaxError.*net.py:4"),
    ("leaves", net("import os; os._exit(3)") + INPUTS, "ended its process with status 3"),
    ("crashes", net("import ctypes; ctypes.string_at(8)") + INPUTS, r"with signal 11 \(Segmentation fault\)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "source", "message"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_reference_that_cannot_serve_is_named(start: Start, name: str, source: str, message: str) -> None:
    with pytest.raises(ReferenceFault, match=message) as caught:
        start(source)
    assert "Traceback" not in str(caught.value)
    assert caught.value.exit_code == 1


def test_model_that_asks_for_a_gpu_gets_the_way_out(start: Start) -> None:
    with pytest.raises(ReferenceFault) as caught:
        start(net("return x.cuda()") + INPUTS)
    assert "GPU" in caught.value.hint


def test_dropout_module_is_no_randomness_in_eval(start: Start) -> None:
    assert start(net("return self.d(x) * 2", "self.d = torch.nn.Dropout(0.5)") + INPUTS).facts["varies"] == [True]


def test_constructor_arguments_travel_in_every_form(start: Start) -> None:
    source = HEAD + "class Model(torch.nn.Module):\n    def __init__(self, width, *, bias=None):\n"
    source += "        super().__init__()\n        assert width == 8 and bias.shape == (3,)\n"
    source += "    def forward(self, x):\n        return x * 2\n" + INPUTS
    for given in ("[[8], {'bias': torch.ones(3)}]", "{'width': 8, 'bias': torch.ones(3)}"):
        reference = start(f"{source}\n\ndef get_init_inputs():\n    return {given}\n")
        assert not reference.init["opaque"]
        assert len(reference.init["rows"]) == 1


def test_draws_are_fresh_and_forgotten_when_spent(start: Start, runtime: Runtime) -> None:
    reference = start(net("return x * 2") + INPUTS)
    first, second = reference.draw(), reference.draw(state_seed=3)
    assert first.seed != second.seed
    contents = [(runtime.inbox / draw.written["file"]).read_bytes() for draw in (first, second)]
    assert contents[0] != contents[1]
    reference.spend(first)
    assert not (runtime.inbox / first.written["file"]).exists()
    reference.close()
    reference.spend(second)
    assert not (runtime.inbox / second.written["file"]).exists()
