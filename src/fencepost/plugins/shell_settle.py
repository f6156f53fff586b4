"""What really happened to a command, after a crash: its receipts and its processes say so.

    receipts                                what lives      settlement
    none                                                    did not run; unknown where they could not be seen
    started                                 something       still running
    started                                 nothing         unknown
    started, of another run of the machine                  unknown
    started, done: exited                                   completed, with the reply that was due
    started, done: ended                                    unknown, with why, and what it had printed
    started, done: withdrawn or refused                     did not run

Rules:
    1. No started record means that it did not run, because no command is let go before that record is durable (see
       `shell_supervisor`). But only where it would be seen: on the host that let the call go, in the directory that
       was there then; and if who let it go is dead, not only taken over from, for a process that is paused may go on.
    2. A call that was run again has several attempts. What lives comes first; else the last one that ran counts.
    3. It reads only. `Running` ends something when it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from datetime import UTC, datetime
from functools import partial

import msgspec

from fencepost.plugins import shell_alive as alive
from fencepost.plugins.shell_output import Printed
from fencepost.plugins.shell_receipts import DIRECTORY, Attempt, Done, Started, attempts, done_of, output_of
from fencepost.plugins.shell_reply import named, reply_of
from fencepost.runtime.aside import in_thread
from fencepost.runtime.settlement import Completed, DidNotRun, Settlement, StillRunning, Unknown, UnsettledCall
from fencepost.runtime.whereabouts import unseen

WRITING = 5.0
"""Seconds for which a supervisor whose command has ended is given to write its receipt."""
STUCK_AFTER = 5.0
"""Seconds after the grace after which what was to end is killed by whoever asked for its end."""
LOOK = 0.02
"""How often is looked whether something has ended, in seconds."""


def settle(call: UnsettledCall) -> Settlement:
    """See the module. Blocks, for a few seconds at most."""
    try:
        found = attempts(call.files, call.call_id)
    except FileNotFoundError:
        return _without_receipts(call)
    except OSError as error:
        return Unknown(f"the receipts of the shell cannot be read: {error.strerror or error}")
    except msgspec.DecodeError as error:
        return Unknown(f"a receipt of the shell is damaged: {error}")
    if not found:
        return _without_receipts(call)
    said = [_settled(call, attempt) for attempt in found]
    for settlement in said:
        if isinstance(settlement, StillRunning):
            return settlement
    ran = [settlement for settlement in said if not isinstance(settlement, DidNotRun)]
    return ran[-1] if ran else said[-1]


def tidy(call: UnsettledCall) -> None:
    """Remove what a supervisor that is dead was about to put into place. Receipts stay."""
    directory = call.files / DIRECTORY
    if not directory.is_dir():
        return
    for path in directory.iterdir():  # by name: an id from somebody else's log may be a way to somewhere else
        if not (path.name.startswith(f".{call.call_id}.") and path.suffix == ".tmp"):
            continue
        pid = path.name.split(".")[-2]
        if not (pid.isdigit() and alive.runs(int(pid))):
            path.unlink(missing_ok=True)


def _without_receipts(call: UnsettledCall) -> Settlement:
    why = unseen(call.owner, call.let_go)
    if why:
        return Unknown(why)
    try:
        printed = output_of(call.files, call.call_id).exists()
    except OSError as error:
        return Unknown(f"{call.files} cannot be read: {error.strerror or error}")
    if printed:
        return Unknown(f"its receipt is missing, but there is output of it in {output_of(call.files, call.call_id)}")
    if not call.vouched:
        return Unknown(f"no receipt of it is in {call.files / DIRECTORY}, which perhaps has not all that ever were")
    return DidNotRun("the command has no started record, without which none is let go")


def _settled(call: UnsettledCall, attempt: Attempt) -> Settlement:
    started = attempt.started
    done = attempt.done or (_awaited(call, attempt) if alive.same_machine(started) else None)
    if isinstance(done, StillRunning):
        return done
    if done is not None:
        return _finished(call, done)
    why = "its command was started and is gone, and nothing says how it ended"
    if not alive.same_machine(started):
        why = "its command was started, and the machine was started anew since then, or it was another machine"
    return _unknown(why, _printed(call, started))


def _awaited(call: UnsettledCall, attempt: Attempt) -> Done | StillRunning | None:
    """Look at what lives; a supervisor whose command is gone is writing its receipt, and gets the time for that."""
    started, over = attempt.started, time.monotonic() + WRITING
    while True:
        living = alive.members(started)
        watched = alive.lives(started.supervisor)
        # Looked for after the processes: who was gone then had written what it would ever write.
        done = done_of(call.files, call.call_id, attempt.number)
        if done is not None:
            return done
        if not living and not watched:
            return None
        if living or time.monotonic() > over:
            pids = ", ".join(str(process.pid) for process in living or [started.supervisor])
            return StillRunning(Running(call, started), f"process {pids}, since {_moment(started.time)}")
        time.sleep(LOOK)


def _finished(call: UnsettledCall, done: Done) -> Settlement:
    printed = done.printed(output_of(call.files, call.call_id))
    match done.outcome:
        case "withdrawn":
            return DidNotRun(f"a receipt says that {done.why}")
        case "refused":
            return DidNotRun(f"a receipt says that the system refused to run it: {done.why}")
        case "ended":
            return _unknown(f"a receipt says that {done.why}", printed)
    assert done.code is not None
    return Completed(reply_of(done, printed), f"its receipt says {named(done.code)}, {_moment(done.time)}")


def _printed(call: UnsettledCall, started: Started) -> Printed | None:
    try:
        return Printed.in_file(output_of(call.files, call.call_id), started.offset)
    except OSError:
        return None


def _unknown(why: str, printed: Printed | None) -> Unknown:
    return Unknown(f"{why}. {printed.in_short}" if printed is not None else why)


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Running:
    """A command that lives on after its agent."""

    def __init__(self, call: UnsettledCall, started: Started) -> None:
        self._call = call
        self._started = started

    async def wait(self) -> Settlement:
        """Wait for its end. Cancelling leaves it alone."""
        while True:
            said: Settlement = await in_thread("settle shell", partial(settle, self._call))
            if not isinstance(said, StillRunning):
                return said
            await asyncio.sleep(LOOK)

    async def end(self) -> Settlement:
        """Have its supervisor end it; if that is gone, or does not get it done, end what there is of it."""
        started = self._started
        alive.signal_to(started.supervisor, signal.SIGUSR1)
        if alive.lives(started.supervisor):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self.wait(), started.grace + STUCK_AFTER)
            alive.signal_to(started.supervisor, signal.SIGKILL)
        over = time.monotonic() + STUCK_AFTER
        while (living := alive.members(started)) and time.monotonic() < over:
            for process in living:
                alive.signal_to(process, signal.SIGKILL)
            await asyncio.sleep(LOOK)
        said: Settlement = await in_thread("settle shell", partial(settle, self._call))
        return Unknown(f"it could not be ended: {said.evidence}") if isinstance(said, StillRunning) else said
