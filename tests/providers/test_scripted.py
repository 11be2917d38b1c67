"""The provider that answers from a script."""

from pathlib import Path

import pytest

from cuda_tui.agent.protocols import Request
from cuda_tui.errors import ProviderError, UsageError
from cuda_tui.events import CallStreamed, TextStreamed
from cuda_tui.messages import AssistantReply, StopReason, UserText
from cuda_tui.providers.scripted import ScriptedProvider

REQUEST = Request(system="", messages=(UserText(text="go"),), tools=())
SCRIPT = """[
  {"text": "Reading the model file now, then the rest.",
   "tool_calls": [{"id": "1", "name": "read", "arguments": {"path": "model.py"}}]},
  {"error": "overloaded", "retryable": true, "retry_after_s": 2}
]"""


async def test_script_is_streamed_in_pieces_reply_by_reply(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(SCRIPT)
    provider = ScriptedProvider.from_file(path)
    chunks = [chunk async for chunk in provider.stream(REQUEST)]
    texts = [chunk.text for chunk in chunks if isinstance(chunk, TextStreamed)]
    assert len(texts) > 1
    assert "".join(texts) == "Reading the model file now, then the rest."
    assert "".join(c.fragment for c in chunks if isinstance(c, CallStreamed)) == '{"path":"model.py"}'
    assert isinstance(chunks[-1], AssistantReply)
    assert chunks[-1].stop is StopReason.TOOL_CALLS
    with pytest.raises(ProviderError, match="overloaded") as caught:
        [chunk async for chunk in provider.stream(REQUEST)]
    assert (caught.value.retryable, caught.value.retry_after_s) == (True, 2)
    with pytest.raises(ProviderError, match="the script is over after 2 replies"):
        [chunk async for chunk in provider.stream(REQUEST)]
    assert provider.requests == [REQUEST] * 3


@pytest.mark.parametrize("text", ["{", '{"text": "x"}', '[{"text": 3}]'])
def test_file_that_is_no_script_is_a_usage_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a script"):
        ScriptedProvider.from_file(path)


def test_missing_script_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        ScriptedProvider.from_file(tmp_path / "none.json")
