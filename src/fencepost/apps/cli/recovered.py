"""What resuming found and did, for people: a verdict per call, what it means, and what can be done next."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.apps.cli.inspecting import meaning
from fencepost.apps.cli.plain import one_line, plain
from fencepost.core import events as ev
from fencepost.core.verdict import CallVerdict
from fencepost.journal.inspect import PendingInput
from fencepost.journal.session import Recovery

SHOWN = 4000
"""Characters of half an answer that are shown at most: the last ones."""


def recovery_page(name: str, recovery: Recovery, fd: int, half: str = "") -> str:
    """The table of verdicts.

    Args:
        name: the session.
        recovery: of this process.
        fd: what it will be written to, for its width and colours.
        half: what was visible of an answer that was cut.
    """
    from fencepost.apps.cli import paper

    console, page = paper.page(fd)
    if recovery.set_aside:
        console.print(f"{recovery.set_aside} torn bytes at the end were set aside in a side file")
    if recovery.interrupted is None:
        console.print(paper.styled(f"session {name} is clean: nothing was interrupted"))
        return page.getvalue()
    console.print(paper.styled(f"session {name} was interrupted in turn {recovery.interrupted}; it is closed now"))
    if half:
        console.print("half an answer was there, interrupted; the model does not see it again:")
        page.write("".join(f"  {line}\n" for line in plain(half).rstrip().splitlines()))
    if not recovery.calls:
        console.print("no call was open")
        return page.getvalue()
    grid = paper.table(("call", "verdict", "settled by", "means"))
    for found in recovery.calls:
        grid.add_row(
            paper.styled(f"{found.call.name}\n{found.call.call_id}"),
            paper.verdict_text(found.verdict),
            paper.styled(settler(found)),
            paper.styled(meaning(found.verdict, found.evidence)),
        )
    console.print(grid)
    return page.getvalue()


def settler(found: CallVerdict) -> str:
    """What a verdict rests on beside the log: the tool that looked, or that the call ran again."""
    if found.settled_by:
        return found.settled_by
    admitted = found.call.admitted
    return "running it again" if admitted is not None and admitted.retries is not None else "-"


def half_answer(entries: Sequence[ev.Entry], recovery: Recovery) -> str:
    """What people saw of an answer that the crash cut; empty where there was none."""
    if recovery.interrupted is None:
        return ""
    pieces: list[str] = []
    for entry in reversed(entries):
        if isinstance(entry, ev.StepStart | ev.AssistantMessage | ev.RequestRetry):
            break
        if isinstance(entry, ev.ChunkRun | ev.AssistantChunk) and entry.kind == "text":
            pieces.append("".join(entry.deltas) if isinstance(entry, ev.ChunkRun) else entry.delta)
    text = "".join(reversed(pieces)).strip()
    return text if len(text) <= SHOWN else f"… {text[-SHOWN:]}"


def next_page(name: str, recovery: Recovery, pending: Sequence[PendingInput]) -> str:
    """What waits, and what to type."""
    lines = [f"waiting to run: {one_line(item.text, 60)}" for item in pending]
    if recovery.interrupted is not None or pending:
        lines.append(f"to go on with it:  fencepost resume {name} --continue")
    lines.append(f"for a new task:    fencepost resume {name} TASK")
    return "".join(f"{line}\n" for line in lines)
