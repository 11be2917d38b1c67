"""When a call needs a yes, and what an earlier "approve all" covers."""

from cuda_tui.agent.protocols import NEEDS_APPROVAL, Proposal
from cuda_tui.errors import UsageError
from cuda_tui.events import Approval, ApprovalAsked, ApprovalGiven, Decision
from cuda_tui.messages import Effect


class ApprovalPolicy:
    """The rules granted in this session. They belong to its workspace and end with the process."""

    def __init__(self) -> None:
        self._granted: list[str] = []

    @property
    def rules(self) -> tuple[str, ...]:
        """Every rule, in the order it was granted."""
        return tuple(self._granted)

    def needs_yes(self, approval: Approval, effect: Effect, proposal: Proposal) -> bool:
        """Whether the call must be asked. Each part must have been granted by itself; no part granted is no cover."""
        if effect not in NEEDS_APPROVAL[approval.value]:
            return False
        return not proposal.grants or any(grant not in self._granted for grant in proposal.grants)

    def grant(self, proposal: Proposal) -> None:
        """Remember what "approve all" was said to."""
        self._granted += [grant for grant in proposal.grants if grant not in self._granted]

    def forget(self, rule: str) -> None:
        """Take a rule back. Raises UsageError where there is none like it."""
        if rule not in self._granted:
            raise UsageError(f"there is no rule {rule!r}", hint="`rules` lists those in force")
        self._granted.remove(rule)


class RefuseAll:
    """The approver of a session without a person: nothing that needs a yes runs."""

    async def decide(self, asked: ApprovalAsked) -> ApprovalGiven:
        return ApprovalGiven(call_id=asked.call.id, decision=Decision.REJECTED, reason="nobody is there to approve it")
