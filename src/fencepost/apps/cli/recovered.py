"""What resuming found and did, for people: a verdict per call, what it means, and what can be done next."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.apps.cli.inspecting import MEANINGS
from fencepost.apps.cli.plain import one_line
from fencepost.journal.inspect import PendingInput
from fencepost.journal.session import Recovery


def recovery_page(name: str, recovery: Recovery, fd: int) -> str:
    """The table of verdicts.

    Args:
        name: the session.
        recovery: of this process.
        fd: what it will be written to, for its width and colours.
    """
    from fencepost.apps.cli import paper

    console, page = paper.page(fd)
    if recovery.set_aside:
        console.print(f"{recovery.set_aside} torn bytes at the end were set aside in a side file")
    if recovery.interrupted is None:
        console.print(paper.styled(f"session {name} is clean: nothing was interrupted"))
        return page.getvalue()
    console.print(paper.styled(f"session {name} was interrupted in turn {recovery.interrupted}; it is closed now"))
    if not recovery.calls:
        console.print("no call was open")
        return page.getvalue()
    grid = paper.table(("call", "verdict", "means"))
    for found in recovery.calls:
        grid.add_row(
            paper.styled(f"{found.call.name}\n{found.call.call_id}"),
            paper.verdict_text(found.verdict),
            paper.styled(MEANINGS[found.verdict]),
        )
    console.print(grid)
    return page.getvalue()


def next_page(name: str, recovery: Recovery, pending: Sequence[PendingInput]) -> str:
    """What waits, and what to type."""
    lines = [f"waiting to run: {one_line(item.text, 60)}" for item in pending]
    if recovery.interrupted is not None or pending:
        lines.append(f"to go on with it:  fencepost resume {name} --continue")
    lines.append(f"for a new task:    fencepost resume {name} TASK")
    return "".join(f"{line}\n" for line in lines)
