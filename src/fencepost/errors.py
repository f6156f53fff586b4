"""Every error that fencepost raises, in one tree.

Each has a `code` for programs, a sentence that says what happened and where, and `next_act`: what to do about it.
What the model must read (a denied call, bad arguments) is a value in the log, never one of these.
"""

from __future__ import annotations


class FencepostError(Exception):
    """Root of the tree.

    Attributes:
        code: stable name of the cause, for programs.
        next_act: one sentence that says what the reader can do now; may be empty.
    """

    code = "ERROR"
    next_act = ""

    def __init__(self, message: str, *, next_act: str | None = None) -> None:
        super().__init__(message)
        if next_act is not None:
            self.next_act = next_act

    def explain(self) -> str:
        """The sentence for people: what, where, and what to do."""
        return f"{self}. {self.next_act}".rstrip() if self.next_act else str(self)


class UsageError(FencepostError):
    """An argument, a URL or a setting is wrong."""

    code = "USAGE"


class ConfigError(UsageError):
    """A configuration file is wrong; the message names the file and the key."""

    code = "CONFIG"


class IllegalEventError(FencepostError):
    """An append that the lifecycle table, or the log's own bookkeeping, refuses. A bug in the caller."""

    code = "ILLEGAL_EVENT"


class UndeclaredEventError(IllegalEventError):
    """An event type that no composed plugin declares (design.md, section 5)."""

    code = "UNDECLARED_EVENT"


class ClosedError(FencepostError):
    """The session or runtime was closed."""

    code = "CLOSED"


# --- stores -----------------------------------------------------------------------------------------------------


class StoreError(FencepostError):
    """A store could not do what was asked. Its log is as it was (law 6)."""

    code = "STORE"


class SessionNotFoundError(StoreError):
    """No session of that id in this store."""

    code = "NOT_FOUND"
    next_act = "List the sessions of this store with `fencepost sessions`"


class SessionExistsError(StoreError):
    """A session of that id is there already; nothing was overwritten."""

    code = "EXISTS"
    next_act = "Continue it with `fencepost resume`, or choose another id"


class HeldError(StoreError):
    """Another live process owns the session (law 8)."""

    code = "HELD"
    next_act = "Wait for it, end that process, or read the session with `fencepost show`"


class LostOwnershipError(StoreError):
    """This writer was the owner and no longer is; nothing that it appends lands (law 8)."""

    code = "LOST_OWNERSHIP"
    next_act = "Open the session again"


class NoSpaceError(StoreError):
    """The medium, or a quota on it, is full."""

    code = "NO_SPACE"
    next_act = "Free some space; what is pending is kept and the next gate tries again"


class ReadOnlyError(StoreError):
    """The medium does not take writes."""

    code = "READ_ONLY"
    next_act = "Choose a writable place with --store"


class PermissionDeniedError(StoreError):
    """The operating system refuses access."""

    code = "PERMISSION"
    next_act = "Check the owner and mode of that path"


class MediumError(StoreError):
    """The medium failed a write or a sync (EIO and its kin)."""

    code = "IO"
    next_act = "Check the medium; what is pending is kept and the next gate tries again"


class LockedError(StoreError):
    """Another process has the whole store for itself, for longer than this one waits."""

    code = "LOCKED"
    next_act = "End whatever holds it; what is pending is kept and the next gate tries again"


class PoisonedError(StoreError):
    """A failed write could not be rolled back; this writer takes nothing more."""

    code = "POISONED"
    next_act = "Close the session and open it again; what was durable is intact"


class DamagedError(StoreError):
    """Bytes that were durable are no longer whole; the session loads read-only and is never cut."""

    code = "DAMAGED"
    next_act = "See what is intact with `fencepost doctor ID`; go on with that by `fencepost doctor ID --salvage NEW`"


class UnsupportedError(StoreError):
    """Written by a newer fencepost, or by a plugin that is not composed here."""

    code = "UNSUPPORTED"
    next_act = "Upgrade fencepost or compose the plugin; `fencepost export` works without either"


class EncodingRefusedError(StoreError):
    """An event cannot be written in this store's form."""

    code = "ENCODING"


# --- runtime ----------------------------------------------------------------------------------------------------


class NotSavedError(FencepostError):
    """A gate could not make the log durable, so what was behind it did not happen (law 4)."""

    code = "NOT_SAVED"
    next_act = "Nothing behind the gate ran; the log is kept in memory and the next gate tries again"


class ServerLostError(FencepostError):
    """The fencepost in another process is gone, or cannot be reached, and what was asked of it got no answer.

    What it had acknowledged is durable (law 9).
    """

    code = "SERVER_LOST"
    next_act = "Look at the session's recovery for calls whose outcome is unknown; `go_on` goes on with what is left"


class ModelError(FencepostError):
    """A model request failed.

    Attributes:
        retryable: whether the same request may be sent again (issue 2: connection, 408, 409, 429, 5xx, truncated).
        status: HTTP status, if there was one.
        retry_after: seconds that the provider asked to wait, if it did.
    """

    code = "MODEL"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool = False,
        status: int | None = None,
        retry_after: float | None = None,
        next_act: str | None = None,
    ) -> None:
        super().__init__(message, next_act=next_act)
        if code is not None:
            self.code = code
        self.retryable = retryable
        self.status = status
        self.retry_after = retry_after


class CompositionError(FencepostError):
    """Plugins do not fit together: something required is missing, named twice, or goes round in a circle."""

    code = "COMPOSITION"


class Cancelled(FencepostError):  # noqa: N818 - the name of a signal, not of a fault
    """The turn was cancelled; raised inside the loop and caught there."""

    code = "CANCELLED"
