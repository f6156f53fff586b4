"""What the status line says, from the log and the journal: model, tokens, what is on disk, what is at work."""

from __future__ import annotations

from fencepost.apps.cli.plain import one_line
from fencepost.core import events as ev
from fencepost.core.lifecycle import State
from fencepost.plugins.approval import Mode
from fencepost.runtime.session import Session


class Tokens:
    """Tokens of one session, as the providers counted them: a fold over its log, see `plugins.folded`."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0

    def take(self, entry: ev.Entry) -> None:
        """Take the next entry of the log in."""
        if isinstance(entry, ev.AssistantMessage | ev.ContextSummary) and entry.usage is not None:
            self.sent += entry.usage.input_tokens
            self.received += entry.usage.output_tokens


def short(number: int) -> str:
    """A count in at most five characters."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 100 * size else f"{number // size}{unit}"
    return str(number)


def saving(session: Session) -> str:
    """What is on disk, and what is not yet."""
    last, mark = session.journal.log.fold.next_seq - 1, session.journal.watermark
    if not session.guarantees.durable:
        return "NOT SAVED: memory only"
    if last < 0:
        return "nothing to save yet"
    if mark >= last:
        return f"saved {mark + 1}"
    return f"saved {mark + 1} of {last + 1}"


def status_line(session: Session, model: str | None, mode: Mode | None, tokens: Tokens, width: int) -> str:
    """The status line, the less important parts left out where it would not fit.

    Args:
        session: it.
        model: of the next request.
        mode: which calls pass without asking.
        tokens: of the session.
        width: columns.
    """
    fold = session.journal.log.fold
    turn = fold.turn.number if fold.turn is not None else 0
    doing = "idle" if fold.state is State.IDLE else f"turn {turn} works"
    parts = [doing, saving(session), model or "no model", f"{short(tokens.sent)}↑ {short(tokens.received)}↓"]
    parts += [f"approve {mode}"] if mode is not None else []
    parts += [session.id]
    while len(parts) > 2 and len(" · ".join(parts)) > width:
        parts.pop()
    return " · ".join(parts)[:width]


def waiting_lines(session: Session) -> list[str]:
    """Prompts that wait, the next one first."""
    pending = list(session.journal.log.fold.pending.values())
    lines = [
        f"{'steers' if item.target == 'step' else 'waits'}: {one_line(ev.text_of(item.content), 70)}"
        for item in pending
    ]
    return lines if len(lines) <= 3 else [*lines[:2], f"… and {len(lines) - 2} more (/drop takes the newest back)"]
