"""`fencepost fork`: a new session that begins as another one did."""

from __future__ import annotations

import argparse

from fencepost.apps.cli import exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.looking import Desk, act, give
from fencepost.errors import UsageError
from fencepost.journal.fork import Cut, Forked, fork
from fencepost.runtime.runtime import fresh_session_id, system_identity

_TURN = "turn:"


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    cut = cut_of(arguments.at)

    async def work(desk: Desk) -> int:
        identity = system_identity()
        parent = await find(desk.store, arguments.id, desk.cwd)
        to = arguments.to if arguments.to is not None else fresh_session_id(identity)
        made = await fork(desk.store, parent, to, identity, desk.vocabulary, cut)
        if arguments.json:
            give(made)
        else:
            _print(made)
        return exits.DONE

    return act(arguments, work)


def cut_of(text: str | None) -> Cut:
    """What `--at` means: `SEQ`, or `turn:N`.

    Raises:
        UsageError: neither.
    """
    if text is None:
        return Cut()
    number = text.removeprefix(_TURN)
    if not (number.isascii() and number.isdigit()):
        raise UsageError(
            f"--at {text!r} is neither an event nor a turn",
            next_act="Write --at SEQ, or --at turn:N for the end of a turn",
        )
    return Cut(turn=int(number)) if text.startswith(_TURN) else Cut(seq=int(number))


def _print(made: Forked) -> None:
    from fencepost.apps.cli.plain import plain

    print(f"session {plain(made.session)} begins as {plain(made.parent)} did, up to event {made.forked_at}")
    if made.closed:
        print(f"what was open there is closed, by {made.closed} events of its own")
    print(f"for a new task:    fencepost resume {plain(made.session)} TASK")
