"""What reopening a session after a crash says first: a verdict for each call, what settled it, and what it means.

Then it asks. Nothing runs before that, and nothing that was not chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from fencepost.apps.cli import paper
from fencepost.apps.cli.inspecting import meaning
from fencepost.apps.cli.plain import one_line
from fencepost.apps.cli.recovered import half_answer, settler
from fencepost.apps.tui.dialogs import Choice, Options
from fencepost.apps.tui.texts import content
from fencepost.core.verdict import CallVerdict
from fencepost.journal.inspect import CallView, pending_inputs
from fencepost.journal.session import Recovery
from fencepost.runtime.session import Session

GO_ON = "go-on"
PROMPT = "prompt"
DROP = "drop"
LEAVE = "leave"


def to_ask(session: Session) -> bool:
    """Whether there is anything to say before a session is worked with."""
    found = session.recovery
    return found.interrupted is not None or bool(found.set_aside) or bool(session.journal.log.fold.pending)


def recovery_dialog(session: Session) -> Options:
    """The table, and what can be done next."""
    found, log = session.recovery, session.journal.log
    pending = pending_inputs(log.fold)
    shown: list[object] = []
    if found.set_aside:
        shown.append(content(f"{found.set_aside} torn bytes at the end were set aside in a side file"))
    if found.interrupted is not None:
        shown.append(content(f"it was interrupted in turn {found.interrupted}; that turn is closed now"))
        shown.append(_table(found.calls) if found.calls else content("no call was open"))
    half = half_answer(log.entries, found)
    if half:
        shown.append(content("half an answer was there; the model does not see it again:"))
        shown.append(content("\n".join(f"  {line}" for line in half.splitlines()[-6:]), "dim"))
    shown += [content(f"waiting to run: {one_line(item.text, 60)}") for item in pending]
    return Options(f"session {session.id}: recovered", shown, _choices(found, len(pending)))


def _choices(found: Recovery, pending: int) -> Sequence[Choice]:
    prompts = f"{pending} waiting prompt{'s' if pending != 1 else ''}"
    offered = []
    if found.interrupted is not None:
        offered.append(Choice("c", "go on with that turn" + (f", then the {prompts}" if pending else ""), GO_ON))
    elif pending:
        offered.append(Choice("c", f"run the {prompts}", GO_ON))
    keeps = "; what waits keeps waiting" if pending else ""
    offered.append(Choice("p", f"write a new prompt, run nothing now{keeps}", PROMPT))
    if pending:
        offered.append(Choice("d", f"take the {prompts} back, then write a new one", DROP))
    offered.append(Choice("l", "leave it like that", LEAVE))
    return offered


def _table(calls: Iterable[CallVerdict]) -> Table:
    """The table of verdicts."""
    grid = paper.table(("call", "verdict", "settled by", "means"))
    grid.expand = True
    for found in calls:
        grid.add_row(
            paper.styled(f"{found.call.name}\n{found.call.call_id}"),
            paper.verdict_text(found.verdict),
            paper.styled(settler(found)),
            paper.styled(meaning(found.verdict, found.evidence)),
        )
    return grid


def running_dialog(name: str, calls: Iterable[CallView]) -> Options:
    """What is to be done about calls that live on though their agent is gone."""
    shown: list[object] = [content("its process is gone, but calls of it still run:")]
    shown += [content(f"  {call.name} {call.call_id}\n  {call.evidence}") for call in calls]
    choices = [
        Choice("w", "wait until they are over", "wait"),
        Choice("e", "end them", "end"),
        Choice("o", "leave them alone; their outcome stays unknown", "leave"),
    ]
    return Options(f"session {name}", shown, choices)
