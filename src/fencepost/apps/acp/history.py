"""The whole history of a session, as a client is shown it again.

It changes no byte. A turn that was interrupted is closed by nobody yet, so the verdicts on its open calls are those
that repair will write when the session is taken: asked for in the same way, and shown as results are. While another
process owns the session there is no verdict (law 8), and its calls are in progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from acp.schema import ToolCallStatus

from fencepost.apps.acp import cards
from fencepost.apps.acp.plan import PLAN
from fencepost.apps.acp.telling import Teller, Update, note, said_by_user
from fencepost.core import events as ev
from fencepost.core.log import CallRecord, Fold, Log
from fencepost.core.repair import result_of
from fencepost.core.verdict import not_started_text
from fencepost.journal.inspect import CallView, Inspection, Reading


def stored_history(reading: Reading, found: Inspection, cwd: Path) -> Iterator[Update]:
    """The history of a session that nobody here has open.

    Args:
        reading: what is stored.
        found: the inspection of it, settled as repair would settle it.
        cwd: the session's working directory.
    """
    fold = reading.fold
    teller = Teller(fold.calls, cwd, replay=True)
    for entry in reading.stored.entries:
        if entry.seq >= fold.next_seq:
            break  # an event stands there that may not: what is beyond is no history
        yield from teller.tell(entry)
    yield from teller.rest()
    if found.state != "running":
        views = {view.call_id: view for view in found.calls}
        for name in fold.owed:
            if fold.calls[name].name != PLAN and name in views:
                yield _verdict(fold.calls[name], views[name], reading)
        yield from _waiting(fold)
    if found.state in {"damaged", "unsupported"}:
        yield from note(f"this session can be read and not continued: {found.problem}", "state")


def live_history(log: Log, until: int, cwd: Path, before: Mapping[str, cards.Before]) -> Iterator[Update]:
    """The history of a session that is open here.

    Args:
        log: its log.
        until: the first seq that is still to be told live.
        cwd: the session's working directory.
        before: the old content of files, by call.
    """
    teller = Teller(log.fold.calls, cwd, replay=True, before=before.get)
    for event in log.events():
        if event.seq >= until:
            break
        yield from teller.tell(event)
    yield from teller.rest()


def _waiting(fold: Fold) -> Iterator[Update]:
    """Prompts that were acknowledged and have not run."""
    for item in fold.pending.values():
        yield from said_by_user(ev.text_of(item.content), item.input_id)
        text = "this prompt is kept and has not run; say it again, or run it with `fencepost resume ID --continue`"
        yield from note(text, item.input_id)


def _verdict(record: CallRecord, view: CallView, reading: Reading) -> Update:
    """What is known of an open call, as its result will say it."""
    turn = reading.fold.turns[record.turn]
    text = ev.text_of(result_of(record, turn.gates, reading.evidence).fields["content"])
    if view.settled_by:
        text = f"[Established after a crash by {view.settled_by}: {view.evidence}]"
        if view.verdict == "not_started":
            text = not_started_text(f"established after a crash by {view.settled_by}: {view.evidence}")
    elif view.evidence:
        text = f"{text}\n\n{view.evidence}"
    about = {"verdict": view.verdict, "code": view.code, "settled_by": view.settled_by}
    status: ToolCallStatus = "completed" if view.verdict == "completed" else "failed"
    return cards.progress(record.call_id, status=status, content=(cards.text_content(text),), about=about)
