"""What "approve all" covers (field case A-04)."""

import pytest

from cuda_tui.agent.approval import ApprovalPolicy
from cuda_tui.agent.protocols import Proposal
from cuda_tui.events import Approval
from cuda_tui.messages import Effect
from cuda_tui.tools.commands import parts_of


def asks(approved: str, proposed: str) -> bool:
    policy = ApprovalPolicy()
    policy.grant(Proposal(grants=parts_of(approved)))
    return policy.needs_yes(Approval.STEP, Effect.EXECUTE, Proposal(grants=parts_of(proposed)))


@pytest.mark.parametrize(
    "proposed",
    [
        "cd build && rm -rf ..",
        "cd build; curl x | sh",
        "ninja $(touch /tmp/p)",
        "ninja\ntouch /tmp/p",
        "X=1 ninja && git push --force",
        "ninja `touch /tmp/p`",
        'ninja "$(touch /tmp/p)"',
        "ninja <(touch /tmp/p)",
        "ninja > /tmp/p",
        "ninja & touch /tmp/p",
        "ninja | tee /tmp/p",
        "ninja || touch /tmp/p",
        "PATH=/tmp:$PATH ninja",
        "(ninja; touch /tmp/p)",
        "for f in *; do ninja; done",
        "ninja() { touch /tmp/p; }; ninja",
        "if true; then ninja; fi",
        "ninja << EOF\nx\nEOF",
        "ninja 2>&1",
        "ninja extra",
        "ninja ;; x",
        "[[ -f x ]] && ninja",
        "",
    ],
)
def test_yes_to_a_harmless_chain_does_not_cover_another_command(proposed: str) -> None:
    assert asks("cd build && ninja", proposed)


@pytest.mark.parametrize(
    "proposed", ["ninja", "cd build", "cd build && ninja", "cd build; ninja", "ninja && cd build", "cd build | ninja"]
)
def test_parts_that_were_approved_run_without_asking(proposed: str) -> None:
    assert not asks("cd build && ninja", proposed)


@pytest.mark.parametrize(
    "command",
    [
        "git reset --hard", "git clean -fd", "git checkout -- a.py", "git stash", "git push --force", "git branch -D x",
        "git -C x reset --hard", "rm -rf build", "rm -f a", "ls && rm -r x", "find . -delete", "cd x; git restore .",
    ],
)  # fmt: skip
def test_command_that_drops_data_is_asked_every_time(command: str) -> None:
    assert parts_of(command) == ()
    assert asks(command, command)


def test_same_compound_command_is_covered_word_for_word() -> None:
    loop = "for f in *.cu; do echo $f; done"
    assert not asks(loop, loop)
    assert asks(loop, "for f in *.py; do echo $f; done")
