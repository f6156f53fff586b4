"""`fencepost doctor ID --repair` and `--salvage NEW`: what can be done about a session that is not whole.

Both are asked for one session by its name, and neither throws a byte away: repair moves the torn tail into a side file,
salvage writes new sessions beside the original.
"""

from __future__ import annotations

import argparse

import msgspec

from fencepost.apps.cli import exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.looking import Desk, act, give
from fencepost.apps.cli.plain import plain
from fencepost.errors import UsageError
from fencepost.journal.salvage import SalvagedLine, SalvagedSession, salvage_session, set_torn_aside
from fencepost.runtime.runtime import system_identity


class Repaired(msgspec.Struct, frozen=True):
    """What `--repair` did: bytes that it moved into a side file."""

    session: str
    set_aside: int


def main(arguments: argparse.Namespace) -> int:
    """Run `doctor` with one of the two.

    Raises:
        UsageError: without an ID, or with both.
    """
    if arguments.id is None:
        raise UsageError("--repair and --salvage are for one session", next_act="Name it: fencepost doctor ID …")
    if arguments.repair and arguments.salvage is not None:
        raise UsageError("--repair and --salvage are two different things", next_act="Choose one of them")

    async def work(desk: Desk) -> int:
        session = await find(desk.store, arguments.id, desk.cwd)
        record = await _repair(desk, session) if arguments.repair else await _salvage(desk, session, arguments.salvage)
        if arguments.json:
            give(record)
        else:
            print("\n".join(_told(record)))
        return exits.DONE

    return act(arguments, work)


async def _repair(desk: Desk, session: str) -> Repaired:
    return Repaired(session, await set_torn_aside(desk.store, session))


async def _salvage(desk: Desk, session: str, to: str) -> SalvagedSession:
    return await salvage_session(desk.store, session, to, system_identity(), desk.vocabulary, str(desk.cwd))


def _told(record: Repaired | SalvagedSession) -> list[str]:
    if isinstance(record, Repaired):
        name = plain(record.session)
        if not record.set_aside:
            return [f"session {name} has no torn tail; nothing was changed"]
        return [f"session {name}: {record.set_aside} torn bytes were moved out of its log, into a file beside it"]
    lines = [
        f"session {plain(record.parent)} stays as it is ({plain(record.problem)})",
        *(_line(line) for line in record.lines),
        f"to go on with it:    fencepost resume {plain(record.lines[0].session)} TASK",
    ]
    if len(record.lines) > 1:
        lines.insert(1, f"it holds {len(record.lines)} lines of events, by different writers; each is a session now:")
    return lines


def _line(line: SalvagedLine) -> str:
    parts = [f"{line.intact} intact", f"{line.gaps} gaps" if line.gaps != 1 else "1 gap"]
    parts += [f"{line.renumbered} from beyond it in their place"] if line.renumbered else []
    parts += [f"{line.wrapped} from beyond it kept as they were"] if line.wrapped else []
    parts += [f"{line.closed} to close what was open"] if line.closed else []
    return f"session {plain(line.session)} has {line.events} events: {', '.join(parts)}"
