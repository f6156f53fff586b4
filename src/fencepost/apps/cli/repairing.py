"""`fencepost resume ID` without a task: take the session, close what was interrupted, say what was found, let go."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.apps.cli import chosen, exits
from fencepost.apps.cli.inspecting import MEANINGS
from fencepost.apps.cli.live import Stage, waiting
from fencepost.apps.cli.outlet import Outlet
from fencepost.apps.cli.plain import one_line
from fencepost.apps.cli.views import Opening, Outcome, recovery_view
from fencepost.core.codec import encode
from fencepost.core.lifecycle import State
from fencepost.journal.inspect import PendingInput
from fencepost.journal.session import Journal, Recovery
from fencepost.runtime.config import LoadedConfig
from fencepost.runtime.runtime import system_identity
from fencepost.stores.base import Store


async def repair(stage: Stage, store: Store, name: str, loaded: LoadedConfig, *, json: bool) -> int:
    """Repair the session and print what was found; returns the exit status. Nothing runs, so no model is needed.

    Raises:
        SessionNotFoundError, HeldError, DamagedError, UnsupportedError: nothing was touched.
        NotSavedError: the closers could not be made durable.
    """
    journal, recovery = await Journal.resume(store, name, system_identity(), chosen.vocabulary(loaded))
    try:
        pending = waiting(journal.log.fold.pending.values())
        if json:
            header = journal.log.header
            view = recovery_view(recovery, pending)
            stage.view.opened(Opening(name, store.url, header.cwd, None, None, view))
            for event in journal.log.events(journal.log.fold.next_seq - (recovery.closed + 1)):
                if recovery.closed:
                    stage.out.put(encode(event) + b"\n")
        else:
            print_recovery(stage.out, name, recovery, pending, runs=False)
        assert journal.log.fold.state is State.IDLE, "a session is clean after its repair"
    finally:
        await journal.close()
    if json:
        stage.view.ended(Outcome(name, "resumed", saved=store.durable))
    return exits.DONE if stage.stop.cause is None else stage.stop.cause.status


def print_recovery(out: Outlet, name: str, recovery: Recovery, pending: Sequence[PendingInput], *, runs: bool) -> None:
    """What resuming found and did, for people, and what they can do next."""
    from fencepost.apps.cli import paper

    if runs and recovery.interrupted is None and not recovery.set_aside:
        return
    console, page = paper.page(2 if runs else 1)
    if recovery.set_aside:
        console.print(f"{recovery.set_aside} torn bytes at the end were set aside in a side file")
    if recovery.interrupted is None:
        console.print(paper.styled(f"session {name} is clean: nothing was interrupted"))
    else:
        console.print(paper.styled(f"session {name} was interrupted in turn {recovery.interrupted}; it is closed now"))
        if recovery.calls:
            grid = paper.table(("call", "verdict", "means"), fixed=0)
            for found in recovery.calls:
                grid.add_row(
                    paper.styled(f"{found.call.name}\n{found.call.call_id}"),
                    paper.verdict_text(found.verdict),
                    paper.styled(MEANINGS[found.verdict]),
                )
            console.print(grid)
        else:
            console.print("no call was open")
    if not runs:
        for line in _next(name, recovery, pending):
            console.print(paper.styled(line))
    out.put(page.getvalue().encode(errors="replace"))


def _next(name: str, recovery: Recovery, pending: Sequence[PendingInput]) -> list[str]:
    lines = [f"waiting to run: {one_line(item.text, 60)}" for item in pending]
    if recovery.interrupted is not None or pending:
        lines.append(f"to go on with it:  fencepost resume {name} --continue")
    return [*lines, f"for a new task:    fencepost resume {name} TASK"]
