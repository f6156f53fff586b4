"""The supervisor of one command: stands between the agent and the command, and lives on when the agent is killed.

    the agent                          the supervisor
                    order          ->
                                       holds a process; started record, durable
                    <-  ready
                    go             ->  lets it be the command
                    <-  output
                                       done receipt, synced and in place
                    <-  done
                                       its name durable

Without `go` the command never starts. So of a call without a started record it is certain that its command did not
run, whoever was killed when: no look at whether the agent lives could say as much, for it can die after the look.

What ends a command before it ends by itself: its time; the agent's orders `C` (SIGTERM, then SIGKILL) and `K`
(SIGKILL); SIGUSR1 from whoever resumes the session; and the agent's death, if it was ordered so (`on_crash`). When it
has ended, what it left in the background may linger for an instant and is then ended too. In each case there is a done
receipt that says how it ended, unless the supervisor is killed itself.

What it refuses to be: a part of the agent. It imports nothing of the package but its own modules, and as little as
possible of the library: it is forked once per command.
"""

# ruff: noqa: SIM105 - contextlib takes longer to import than a supervisor takes to start

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

try:
    import _signal as signal  # type: ignore[import-not-found]
except ImportError:
    import signal

from fencepost.plugins.shell_command import Command
from fencepost.plugins.shell_hearing import Hearing
from fencepost.plugins.shell_printed import Kept, Line
from fencepost.plugins.shell_record import Receipts, start_of

if TYPE_CHECKING:
    import socket
    from typing import Any, TypeAlias

    from fencepost.plugins.shell_launcher import Home

    Order: TypeAlias = dict[str, Any]
    Fields: TypeAlias = dict[str, object]

PIECE = 65_536
"""Bytes that are read at a time."""
AT_ONCE = 16
"""Pieces that are read before anything else is looked at."""
IDLE_LOOK = 0.05
"""Where orphans are not adopted: how often to look whether the group still lives, in seconds."""

AGENT_DIED = "the command was ended because the process of the agent had died"
CANCELLED = "the command was ended because the turn was cancelled"
TORN_DOWN = "the command was ended because its call was torn down"
RESUMED = "the command was ended when the session was resumed"


class Supervisor:
    """Stands by: all is done that can be before an order comes, for somebody will wait for the rest.

    Args:
        home: what all supervisors have in common.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._hears = Hearing(home.agent)
        self._command: Command | OSError
        self._who: Fields = {}
        try:
            self._command = Command.hold(home.dispositions)
        except OSError as error:
            self._command = error  # told to whoever gives an order
            return
        self._who = {"command": _process(self._command.pid), "supervisor": _process(os.getpid())}
        # What is touched first after a fork is copied first. Here nobody waits for it.
        json.loads(json.dumps(self._who))

    def supervise(self, control: socket.socket) -> None:
        """Take the order that comes through `control`, and see it through."""
        hears, line, command = self._hears, Line(control), self._command
        hears.attend(control)
        size = hears.exactly(4)
        text = hears.exactly(int.from_bytes(size, "big"))
        if not text:
            return  # the agent is gone, and nobody knows what it wanted
        order = json.loads(text)
        order["files"] = os.fsdecode(order["files"].encode("latin-1"))
        try:
            if isinstance(command, OSError):
                raise command
            os.chdir(order["cwd"].encode("latin-1"))
        except OSError as error:
            line.say(b"x", _refusal(error, "process"))
        else:
            kept = Kept(f"{order['files']}/{order['call_id']}.log")
            Watch(order, hears, line, kept, command).run(self._started(order, kept))
        _told(hears, line)

    def _started(self, order: Order, kept: Kept) -> Fields:
        return self._who | {
            "version": 1,
            "call_id": order["call_id"],
            "session_id": order["session_id"],
            "boot": self._home.boot,
            "space": self._home.space,
            "time": time.time_ns() // 1_000_000,
            "on_crash": order["on_crash"],
            "grace": order["grace"],
            "offset": kept.offset,
        }


def _process(pid: int) -> dict[str, int]:
    return {"pid": pid, "start": start_of(pid)}


def _refusal(error: OSError, about: str) -> bytes:
    return json.dumps({"errno": error.errno or 0, "why": error.strerror or str(error), "about": about}).encode()


def _told(hears: Hearing, line: Line) -> None:
    """Return when the agent has got all, or does not listen any more."""
    while line.waiting and hears.listened_to:
        hears.wait(None, to_send=True)
        line.send()


class Watch:
    """One command from its fork to its receipt."""

    def __init__(self, order: Order, hears: Hearing, line: Line, kept: Kept, command: Command) -> None:
        self._order = order
        self._hears = hears
        self._line = line
        self._kept = kept
        self._command = command
        self._reading = False
        self._ending = ""
        """Why it is being ended, before it ended by itself."""
        self._left = False
        """Whether something that it left behind had to be ended."""
        self._over_at = self._kill_at = self._linger_at = float("inf")

    def run(self, started: Fields) -> None:
        """To its end.

        Args:
            started: what its started record says.
        """
        try:
            receipts = Receipts(f"{self._order['files']}/receipts", self._order["call_id"])
            receipts.begin(started)
        except OSError as error:
            self._command.withdraw()
            self._line.say(b"x", _refusal(error, "receipt"))
            return
        who = {"pid": os.getpid(), "command": self._command.pid, "offset": self._kept.offset}
        self._line.say(b"r", json.dumps(who).encode())
        done = self._done() if self._goes() else self._withdrawn()
        try:
            receipts.end(done)
        except OSError:
            pass  # the agent, if it lives, hears it all the same; else the outcome is unknown
        self._line.catch_up()
        self._line.say(b"d", json.dumps(done).encode())
        try:
            receipts.sync()  # only a power cut could undo it, so the agent, which has a log, was not made to wait
        except OSError:
            pass

    # --- its start ----------------------------------------------------------------------------------------------

    def _goes(self) -> bool:
        """Wait for the agent's word. Nothing else lets a command start."""
        orders = b""
        while not orders and self._hears.listened_to:
            orders, _ = self._hears.wait(None)
            if self._hears.take_signal(signal.SIGUSR1):
                return False
        if not orders.startswith(b"G"):
            return False
        self._over_at = time.monotonic() + self._order["timeout"]
        self._hears.also(self._command.output)
        self._reading = True
        argv = [text.encode("latin-1") for text in self._order["argv"]]
        environment = self._order["environment"].items()
        self._command.let_go(
            argv,
            {name.encode("latin-1"): text.encode("latin-1") for name, text in environment},
            self._order["cwd"].encode("latin-1"),
        )
        self._obey(orders[1:])
        return True

    def _withdrawn(self) -> Fields:
        self._command.withdraw()
        return self._receipt("withdrawn", None, "it was never let go")

    # --- its life -----------------------------------------------------------------------------------------------

    def _done(self) -> Fields:
        command = self._command
        while not command.reap():
            if self._look_at_the_clock():
                command.kill()
                break
            orders, ready = self._hears.wait(self._patience(), to_send=self._line.waiting)
            self._listen(orders)
            if self._command.output in ready:
                self._read()
            self._line.send()
        self._read()
        self._deaf()
        self._kept.settle()
        number = command.why_not()
        if number:
            return self._receipt("refused", None, os.strerror(number), number)
        return self._receipt("ended" if self._ending else "exited", command.code, self._ending)

    def _listen(self, orders: bytes) -> None:
        if self._hears.take_signal(signal.SIGUSR1):
            self._stop(RESUMED, self._order["grace"])
        self._obey(orders)
        if self._hears.agent_died:
            self._line.close()
            if self._order["on_crash"] == "end":
                self._stop(AGENT_DIED, 0)

    def _obey(self, orders: bytes) -> None:
        if b"K" in orders:
            self._stop(TORN_DOWN, 0)
        elif b"C" in orders:
            self._stop(CANCELLED, self._order["short_grace"])

    def _look_at_the_clock(self) -> bool:
        """Do what is due. True: everything has to be killed now."""
        now, order = time.monotonic(), self._order
        if self._command.code is None:
            if now >= self._over_at:
                self._stop(f"the command was ended after {order['timeout']:g} s", order["grace"])
        elif self._over_at != float("inf"):
            self._over_at = float("inf")
            self._linger_at = now + order["linger"]
        elif now >= self._linger_at:
            self._stop("", order["short_grace"])
        return now >= self._kill_at

    def _stop(self, why: str, grace: float) -> None:
        """SIGTERM, then SIGKILL after `grace` seconds, or sooner if somebody before was in more of a hurry."""
        if self._command.code is not None:
            self._left = True
        else:
            self._ending = self._ending or why
        first = self._kill_at == float("inf")
        self._kill_at = min(self._kill_at, time.monotonic() + grace)
        self._over_at = self._linger_at = float("inf")
        if first and grace > 0:
            self._command.signal(signal.SIGTERM)

    def _patience(self) -> float | None:
        """Seconds until the clock has to be looked at."""
        seconds = min(self._over_at, self._kill_at, self._linger_at) - time.monotonic()
        if not self._command.adopts:
            seconds = min(seconds, IDLE_LOOK)
        return None if seconds == float("inf") else max(0.0, seconds)

    # --- what it prints -----------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Some of the output, or its end."""
        for _ in range(AT_ONCE if self._reading else 0):
            try:
                piece = os.read(self._command.output, PIECE)
            except BlockingIOError:
                return
            if not piece:
                self._deaf()
                return
            self._kept.add(piece)
            self._line.show(piece)

    def _deaf(self) -> None:
        if self._reading:
            self._hears.not_any_more(self._command.output)
            self._reading = False

    def _receipt(self, outcome: str, code: int | None, why: str, number: int = 0) -> Fields:
        fields: Fields = {
            "version": 1,
            "outcome": outcome,
            "code": code,
            "why": why,
            "errno": number,
            "left": self._left,
            "time": time.time_ns() // 1_000_000,
        }
        return fields | self._kept.fields()
