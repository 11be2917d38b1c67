"""What can go wrong in a way that the person can act on.

Each error names the thing, the fact and the next step. Its exit code is the one the command line ends with:
1 usage, 2 infrastructure, 3 stopped unfinished.
"""


class CudaTuiError(Exception):
    """Base of every error that is shown as one message, without a traceback.

    `message` names the thing and the fact; `hint` is the next step and may be empty.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(CudaTuiError):
    """The command, the file or the settings cannot be used as given."""

    exit_code = 1


class InfrastructureError(CudaTuiError):
    """The machine lacks something, or a piece of ours broke."""

    exit_code = 2


class WorkspaceError(UsageError):
    """A workspace is missing, damaged, or its protected files were changed."""


class ReferenceFault(UsageError):
    """The user's own model cannot serve as a reference: it fails, is random, or returns nothing to compare."""


class ProviderError(InfrastructureError):
    """The model provider refused or failed for good. `retryable` says whether trying again could help."""

    def __init__(
        self, message: str, *, hint: str = "", retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class Cancelled(CudaTuiError):
    """The person stopped the step."""

    exit_code = 3
