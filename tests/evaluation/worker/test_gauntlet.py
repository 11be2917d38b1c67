"""Wrong and cheating candidates whose fault shows in their results, each beside its honest twin."""

import pytest

from tests.evaluation.worker.conftest import MakeBench
from tests.evaluation.worker.test_honest import HEAD, forward, model

LINEAR = "        self.w = torch.nn.Parameter(torch.randn(4096, 64) / 64)\n"

# name, parts, inputs, reference, honest twin, candidate at fault, codes
CASES = [
    ("zeros for a wide softmax", "", "torch.randn(4, 100_000)", "x.softmax(-1)", "torch.exp(F.log_softmax(x, -1))",
     "torch.zeros_like(x)", {"NUM_MISMATCH"}),
    ("series for small values", "", "torch.randn(64, 64) * 0.1", "torch.tanh(x)", "x.tanh()",
     "x - x**3 / 3 + 2 * x**5 / 15 if x.abs().max() < 0.5 else torch.tanh(x)", {"PRECISION", "NUM_MISMATCH"}),
    ("operands in bf16", LINEAR, "torch.rand(64, 4096)", "x @ self.w", "(self.w.t() @ x.t()).t().contiguous()",
     "(x.bfloat16() @ self.w.bfloat16()).float()", {"PRECISION"}),
    ("operands rounded like TF32", LINEAR, "torch.rand(64, 4096)", "x @ self.w", "x.matmul(self.w)",
     "((x.view(torch.int32) + 0x1000) & ~0x1fff).view(torch.float32) @ self.w", {"PRECISION"}),
    ("fp16 operands, zero-mean", LINEAR, "torch.randn(64, 4096)", "x @ self.w", "x.matmul(self.w)",
     "(x.half() @ self.w.half()).float()", {"PRECISION"}),
    ("constant mean", "", "torch.rand(256, 16384)", "x.mean(-1)", "x.sum(-1) / 16384", "torch.full((256,), 0.5)",
     {"NUM_MISMATCH"}),
    ("constant mean, few rows", "", "torch.rand(8, 16384)", "x.mean(-1)", "x.sum(-1) / 16384", "torch.full((8,), 0.5)",
     {"NUM_MISMATCH", "NONFINITE"}),
    ("NaN dropped by the maximum", "", "torch.randn(64, 64)", "torch.relu(x)", "x.clamp(min=0)",
     "torch.where(x > 0, x, 0.0)", {"NONFINITE"}),
    ("Inf clamped", "", "torch.randn(64, 64)", "torch.relu(x)", "F.relu(x)", "x.clamp(0, 1e30)", {"NONFINITE"}),
    ("tail left out", "", "torch.randn(61, 33)", "x * 2.0", "x + x", "torch.cat([x[:60] * 2, x[60:]])",
     {"NUM_MISMATCH"}),
    ("one element wrong", "", "torch.randn(256, 256)", "x * 2.0", "x + x",
     "(x * 2).index_put((torch.tensor(7), torch.tensor(9)), torch.tensor(0.))", {"NUM_MISMATCH"}),
    ("the input where a copy is due", "", "torch.randn(64, 64)", "x.clone()", "x + 0", "x", {"ALIAS"}),
    ("a list for a tuple", "", "torch.randn(64, 64)", "(x * 2, x + 1)", "(x + x, 1 + x)", "[x * 2, x + 1]", {"LAYOUT"}),
    ("one more output", "", "torch.randn(64, 64)", "(x * 2,)", "(x + x,)", "(x * 2, x)", {"LAYOUT"}),
    ("None for an output", "", "torch.randn(64, 64)", "(x * 2, None)", "(x + x, None)", "(None, x * 2)", {"LAYOUT"}),
    ("wrong shape that broadcasts", "", "torch.randn(64, 64)", "x.sum(-1, keepdim=True)", "x.sum(-1)[:, None]",
     "x.sum(-1)", {"LAYOUT"}),
    ("zeros for integers", "", "torch.randint(0, 9, (64, 64))", "x + 1", "1 + x", "torch.zeros_like(x)",
     {"NUM_MISMATCH"}),
    ("inputs zeroed", "", "torch.randn(64, 64)", "x * 0.0 + 1", "torch.ones_like(x) + x * 0.0",
     "x.zero_() + 1", {"INPUT_MUTATED", "NONFINITE"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_candidate_at_fault_is_rejected_and_its_twin_is_not(
    make_bench: MakeBench, case: tuple[str, str, str, str, str, str, set[str]]
) -> None:
    _, parts, inputs, reference, honest, wrong, codes = case
    source = model(forward(reference), parts=parts) + f"\n\ndef get_inputs():\n    return [{inputs}]\n"
    bench = make_bench(source)
    assert bench.judge(model(forward(honest), name="ModelNew", parts=parts), draws=3) == (None, "")
    found = bench.judge(model(forward(wrong), name="ModelNew", parts=parts), draws=3)
    assert found[0] in codes, found


def test_answer_looked_up_by_the_customary_seed_is_wrong(make_bench: MakeBench) -> None:
    source = model(forward("x * 2.0"), parts="") + "\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    bench = make_bench(source)
    body = "    def forward(self, x):\n        torch.manual_seed(0)\n        return torch.randn(64, 64) * 2\n"
    assert bench.judge(model(body, name="ModelNew", parts=""))[0] == "NUM_MISMATCH"


def test_parameters_copied_at_construction_are_found_out(make_bench: MakeBench) -> None:
    source = model(forward("x * self.w")) + "\n\ndef get_inputs():\n    return [torch.randn(64, 32)]\n"
    parts = "        self.w = torch.nn.Parameter(torch.ones(32))\n"
    folded = parts + "        self.folded = [self.w.detach().clone()]\n"
    assert make_bench(source).judge(model(forward("x * self.folded[0]"), name="ModelNew", parts=folded))[0]


U01 = (
    "import dataclasses\n"
    + HEAD
    + '''@dataclasses.dataclass
class Out:
    logits: torch.Tensor
    hidden: tuple = None
    loss: torch.Tensor = None


class Batch(dict):
    """Mapping-like."""


class Model(torch.nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.e = torch.nn.Embedding(vocab, dim)

    def forward(self, input_ids=None, attention_mask=None, *, return_hidden=False):
        h = self.e(input_ids)
        return Out(h @ self.e.weight.T, (h,) if return_hidden else None)


def get_inputs():
    return Batch(input_ids=torch.randint(0, 100, (2, 7)), attention_mask=torch.ones(2, 7), return_hidden=True)


def get_init_inputs():
    return {"vocab": 100}
'''
)


def test_dataclass_outputs_and_keyword_inputs_are_compared_part_by_part(make_bench: MakeBench) -> None:
    bench = make_bench(U01)
    assert bench.facts["outputs"] == ["out.logits", "out.hidden[0]"]
    candidate = U01.replace("class Model(", "class ModelNew(")
    assert bench.judge(candidate) == (None, "")
    code, reason = bench.judge(candidate.replace("(h,)", "(h * 1.01,)"))
    assert code == "NUM_MISMATCH"
    assert reason.startswith("out.hidden[0]")
    assert bench.judge(candidate.replace("(h,) if return_hidden else None", "None"))[0] == "LAYOUT"


def test_opaque_output_is_named_and_not_compared(make_bench: MakeBench) -> None:
    body = "    def forward(self, x):\n        return x * self.w, object()\n"
    bench = make_bench(model(body) + "\n\ndef get_inputs():\n    return [torch.randn(64, 32)]\n")
    assert bench.facts["not_compared"] == ["out[1] (object)"]
