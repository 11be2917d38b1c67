"""Honest candidates that a careless evaluator would accuse, and for each kind a wrong one that must not pass."""

import pytest

from tests.evaluation.worker.conftest import MakeBench

HEAD = "import torch\nimport torch.nn.functional as F\n\n\n"


def model(
    body: str, *, name: str = "Model", parts: str = "        self.w = torch.nn.Parameter(torch.ones(32))\n"
) -> str:
    """A module with this forward body."""
    return f"{HEAD}class {name}(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n{parts}\n{body}"


def forward(text: str) -> str:
    """A forward of one input."""
    return f"    def forward(self, x):\n        return {text}\n"


RANDN = "\n\ndef get_inputs():\n    return [torch.randn(64, 32)]\n"

# name, reference's forward, honest candidate's, a wrong one's, its code
PAIRS = [
    ("view of the input", "x.t()", "x.transpose(0, 1)", "x.t() * 1.001", "NUM_MISMATCH"),
    ("the input itself", "x", "x", "x * 1.001", "NUM_MISMATCH"),
    ("copy and not the input", "x.clone()", "x + 0", "x", "ALIAS"),
    ("channels last", "(x * self.w).view(4, 16, 8, 4).contiguous(memory_format=torch.channels_last)",
     "(x * self.w).view(4, 16, 8, 4)", "(x + self.w).view(4, 16, 8, 4)", "NUM_MISMATCH"),
    ("argmax", "(x * self.w).argmax(-1)", "(self.w * x).max(-1).indices", "(x * self.w).argmin(-1)", "NUM_MISMATCH"),
    ("threshold near a tie", "(x * 3.0).sum(-1) > 0", "(x.flip(-1) * 3.0).sum(-1) > 0", "(x * 3.0).sum(-1) > 1",
     "NUM_MISMATCH"),
    ("empty output", "(x * self.w)[:0], x * self.w", "(self.w * x)[:0], self.w * x", "(x * self.w)[:0], x + self.w",
     "NUM_MISMATCH"),
    ("loss", "(x * self.w).square().mean()", "(self.w * x).pow(2).sum() / x.numel()", "x.square().mean() * 1.01",
     "NUM_MISMATCH"),
    ("plain float", "((x * self.w).square().mean()).item()", "((x * self.w).pow(2).sum() / x.numel()).item()",
     "((x * self.w).square().mean()).item() * 1.01", "NUM_MISMATCH"),
    ("constant loss beside an output", "x * self.w, torch.zeros(())", "self.w * x, x.new_zeros(())",
     "x * self.w, torch.ones(())", "NUM_MISMATCH"),
    ("complex", "torch.fft.rfft(x * self.w)", "torch.fft.fft(x * self.w)[:, :17].clone()",
     "torch.fft.rfft(x) * 1.001", "NUM_MISMATCH"),
    ("rows of NaN", "torch.log(x) * self.w", "self.w * torch.log(x)", "torch.log(x.abs()) * self.w", "NONFINITE"),
    ("half precision throughout", "(x.half() * self.w.half()).softmax(-1)", "(self.w.half() * x.half()).softmax(-1)",
     "torch.zeros_like(x).half()", "NUM_MISMATCH"),
    ("bf16 named inside", "(x.bfloat16() @ self.w.bfloat16()).float()",
     "(x.bfloat16() * self.w.bfloat16()).sum(-1).float()", "(x.bfloat16() @ self.w.bfloat16()).float() * 1.2",
     "NUM_MISMATCH"),
    ("bits of a float", "((x * self.w).view(torch.int32) >> 3).float() * 1e-9 + x",
     "((self.w * x).view(torch.int32) >> 3).float() * 1e-9 + x", "x * 2", "NUM_MISMATCH"),
    ("expanded", "(x.sum(-1, keepdim=True) * self.w[0]).expand(64, 32)",
     "(x.sum(-1, keepdim=True) * self.w[0]).repeat(1, 32)", "x", "NUM_MISMATCH"),
    ("own temporary in place", "torch.relu(x * self.w) + 1", "(x * self.w).relu_().add_(1)", "x.relu_() + 1",
     "NUM_MISMATCH"),
    ("integers", "(x * 100).round().long()", "torch.round(100 * x).to(torch.int64)", "(x * 100).long()",
     "NUM_MISMATCH"),
    ("nothing varies in one output", "x * self.w, torch.arange(100.)", "self.w * x, torch.arange(100).float()",
     "x * self.w, torch.arange(100.) + 1e-3", "NUM_MISMATCH"),
    ("constant large values", "x * self.w + 1e4", "self.w * x + 1e4", "x * self.w + 1.001e4", "NUM_MISMATCH"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reference", "honest", "wrong", "code"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_honest_candidate_passes_and_a_wrong_one_does_not(
    make_bench: MakeBench, name: str, reference: str, honest: str, wrong: str, code: str
) -> None:
    bench = make_bench(model(forward(reference)) + RANDN)
    assert bench.judge(model(forward(reference), name="ModelNew")) == (None, ""), "the reference itself"
    assert bench.judge(model(forward(honest), name="ModelNew")) == (None, "")
    found = bench.judge(model(forward(wrong), name="ModelNew"))
    assert found[0] in {code, "NONFINITE", "PRECISION"}, found


INPUTS = {
    "requires a gradient": "torch.randn(64, 32, requires_grad=True)",
    "no contiguous one": "torch.randn(32, 64).t()",
    "expanded": "torch.randn(32).expand(64, 32)",
    "the same in every draw": "torch.arange(2048.).reshape(64, 32)",
    "seed of its own": "torch.randn(64, 32, generator=torch.Generator().manual_seed(1))",
    "double": "torch.randn(64, 32, dtype=torch.float64)",
}


@pytest.mark.parametrize("made", INPUTS.values(), ids=INPUTS.keys())
def test_inputs_of_every_form_reach_both_sides_alike(make_bench: MakeBench, made: str) -> None:
    bench = make_bench(model(forward("(x * self.w).softmax(-1)")) + f"\n\ndef get_inputs():\n    return [{made}]\n")
    assert bench.judge(model(forward("(self.w * x).softmax(-1)"), name="ModelNew")) == (None, "")
    assert bench.judge(model(forward("torch.zeros_like(x)"), name="ModelNew"))[0] == "NUM_MISMATCH"


def test_inputs_that_ignore_the_seed_differ_from_draw_to_draw(make_bench: MakeBench) -> None:
    bench = make_bench(
        model(forward("x * self.w")) + "\n\ndef get_inputs():\n    return [torch.arange(2048.).view(64, 32)]\n"
    )
    first = "class ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    first += "        self.w = torch.nn.Parameter(torch.ones(32))\n        self.kept = None\n"
    first += "    def forward(self, x):\n        self.kept = x * self.w if self.kept is None else self.kept.clone()\n"
    assert bench.judge(HEAD + first + "        return self.kept\n")[0] == "NUM_MISMATCH"


def test_constant_input_that_must_keep_its_order_is_left_alone(make_bench: MakeBench) -> None:
    body = "    def forward(self, a, x):\n        return torch.linalg.cholesky(a) @ x * self.w\n"
    inputs = "\n\ndef get_inputs():\n    return [torch.eye(64) * 3 + 0.1, torch.randn(64, 32)]\n"
    bench = make_bench(model(body) + inputs)
    assert bench.judge(model(body, name="ModelNew"), draws=2) == (None, "")


def test_buffer_of_minus_infinity_stays_a_mask_when_state_is_redrawn(make_bench: MakeBench) -> None:
    parts = "        self.register_buffer('mask', torch.full((32, 32), float('-inf')).triu(1))\n"
    bench = make_bench(model(forward("(x[:32] + self.mask).softmax(-1)"), parts=parts) + RANDN)
    honest = model(forward("torch.exp(F.log_softmax(self.mask + x[:32], -1))"), name="ModelNew", parts=parts)
    assert bench.judge(honest) == (None, "")
    ignores = model(forward("x[:32].softmax(-1)"), name="ModelNew", parts=parts)
    assert bench.judge(ignores)[0] == "NUM_MISMATCH"


def test_buffer_reused_for_every_output_is_an_alias(make_bench: MakeBench) -> None:
    bench = make_bench(model(forward("x * self.w")) + RANDN)
    parts = "        self.w = torch.nn.Parameter(torch.ones(32))\n        self.out = [torch.empty(64, 32)]\n"
    reuses = model(forward("torch.mul(x, self.w, out=self.out[0])"), name="ModelNew", parts=parts)
    code, reason = bench.judge(reuses)
    assert code == "ALIAS"
    assert "an earlier output" in reason


def test_output_at_the_level_of_rounding_proves_nothing_and_accuses_nobody(make_bench: MakeBench) -> None:
    # The mean over a normalised row is zero but for rounding.
    body = forward("F.layer_norm(x, (32,)).mean(-1)")
    bench = make_bench(model(body, parts="") + "\n\ndef get_inputs():\n    return [torch.randn(512, 32)]\n")
    assert bench.judge(model(body, name="ModelNew", parts="")) == (None, "")
    assert bench.judge(model(forward("x.mean(-1)"), name="ModelNew", parts=""))[0] == "NUM_MISMATCH"


def test_model_without_an_fp64_form_is_compared_with_itself(make_bench: MakeBench) -> None:
    body = forward("(x * self.w).softmax(-1) if x.dtype == torch.float32 else 1 / 0")
    bench = make_bench(model(body) + RANDN)
    assert bench.facts["reference_dtype"] == "as the model runs"
    assert "ZeroDivisionError" in bench.facts["why_not_double"]
    assert bench.judge(model(forward("torch.exp(F.log_softmax(x * self.w, -1))"), name="ModelNew")) == (None, "")
    half = model(forward("(x.bfloat16() * self.w).float().softmax(-1)"), name="ModelNew")
    assert bench.judge(half)[0] in {"PRECISION", "NUM_MISMATCH"}


def test_model_that_hands_out_its_own_memory_does_not_spoil_earlier_draws(make_bench: MakeBench) -> None:
    parts = "        self.register_buffer('state', torch.zeros(64, 32))\n"
    body = "    def forward(self, x):\n        self.state.copy_(x * 2)\n        return self.state\n"
    bench = make_bench(model(body, parts=parts) + RANDN)
    assert bench.judge(model(body, name="ModelNew", parts=parts)) == (None, "")


def test_tied_parameters_stay_tied_or_are_loaded_twice(make_bench: MakeBench) -> None:
    tie = "        self.a = torch.nn.Linear(32, 32)\n        self.b = torch.nn.Linear(32, 32)\n"
    bench = make_bench(
        model(forward("self.b(self.a(x))"), parts=tie + "        self.b.weight = self.a.weight\n") + RANDN
    )
    assert bench.loaded["state"]["b.weight"] == "tied"
    assert bench.judge(model(forward("self.b(self.a(x))"), name="ModelNew", parts=tie)) == (None, "")
