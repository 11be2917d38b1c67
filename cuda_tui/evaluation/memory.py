"""Whether a model fits on a GPU as often as its evaluation needs it there."""

CONTEXT_BYTES = 600 << 20  # of one process: CUDA context and torch's kernels (0.5 to 0.6 GB on an H200)
INPUT_SETS = 3  # rotating sets of inputs and outputs in each timed process; small ones fill three times the L2 instead
MEASURING = 10  # processes with a context: oracle, four candidates, the baselines
VERIFYING = 2  # oracle and one candidate


class TooLittleMemory(Exception):
    """Measuring does not fit on the GPU; the text says what does."""


def needed_bytes(*, state_bytes: int, draw_bytes: int, processes: int = MEASURING, l2_bytes: int = 60 << 20) -> int:
    """A rough lower limit of the GPU memory that `processes` of one evaluation take together.

    `state_bytes` are parameters and buffers, `draw_bytes` the inputs and outputs of one call. Each process has a
    context, the state, and its sets of inputs and outputs; the oracle has the state and a draw in float64 besides.
    Activations inside the model are not counted.
    """
    copies = max(INPUT_SETS * draw_bytes, INPUT_SETS * l2_bytes)
    return processes * (CONTEXT_BYTES + state_bytes + copies) + 2 * (state_bytes + draw_bytes)


def memory_problem(
    free_bytes: int | None, *, state_bytes: int, draw_bytes: int, processes: int = MEASURING, l2_bytes: int = 60 << 20
) -> str:
    """Why the GPU's free memory is too little, with what still works; empty where it is enough or unknown."""
    if free_bytes is None:
        return ""
    measuring = needed_bytes(state_bytes=state_bytes, draw_bytes=draw_bytes, processes=processes, l2_bytes=l2_bytes)
    if measuring <= free_bytes:
        return ""
    verifying = needed_bytes(state_bytes=state_bytes, draw_bytes=draw_bytes, processes=VERIFYING, l2_bytes=l2_bytes)
    text = (
        f"{_size(free_bytes)} are free on the GPU, and measuring takes about {_size(measuring)}: {processes} processes "
    )
    text += f"with {_size(CONTEXT_BYTES)} each and copies of {_size(state_bytes)} of state and {_size(draw_bytes)} of "
    text += "inputs and outputs"
    if verifying <= free_bytes:
        return f"{text}; verifying alone fits ({_size(verifying)}). End what else uses the GPU, or give smaller inputs"
    return f"{text}; not even verifying fits ({_size(verifying)}). End what else uses the GPU, or give smaller inputs"


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
