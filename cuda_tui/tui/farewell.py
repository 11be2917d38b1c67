"""What stays on the person's shell when they leave the screen: the result, where the files are, how to come back."""

from pathlib import Path

from cuda_tui.errors import CudaTuiError
from cuda_tui.export import fold
from cuda_tui.session.log import read_log
from cuda_tui.state.model import State
from cuda_tui.tui.render.units import interval, times


def farewell(log: Path) -> str:
    """A few lines from the session's own log; the log's path alone where it cannot be read."""
    try:
        state = fold(read_log(log).records)
    except CudaTuiError:
        return f"Session log: {log}"
    if state.session is None:
        return f"Session log: {log}"
    name = state.session.session
    return "\n".join(
        [
            f"{state.session.title}: {_result(state)}",
            f"Workspace  {state.session.workspace}",
            f"Session    cuda-tui resume {name}  |  cuda-tui replay {name}",
        ]
    )


def _result(state: State) -> str:
    best = state.best
    if best is None or best.headline is None:
        return "no candidate was measured to be faster than every baseline"
    ratio = best.headline
    commit = f", commit {best.commit[:8]}" if best.commit else ""
    text = f"{times(ratio.value)} {interval(ratio)} against {ratio.baseline}: {ratio.outcome}"
    return f"best is candidate {best.number}, {text}{commit}"
