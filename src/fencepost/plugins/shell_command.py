"""One command and all that it started, from its supervisor's side: held at its start, signalled, collected.

The process is forked first and held until `let_go`, which says what command it is to be. So it can be made durable
which process it is before it does anything. If its supervisor dies before that it leaves without having been anything.

Everything that a command started: on Linux the supervisor adopts orphans (PR_SET_CHILD_SUBREAPER), so whatever left the
group by `setsid` or a double fork is still found below it. Elsewhere it is the process group. Only what another user
owns (sudo) escapes. If the supervisor is killed itself, the command dies by its own death signal, but what the command
started in the background may not.
"""

# ruff: noqa: PTH123, PTH208, SIM105

from __future__ import annotations

import errno
import marshal
import os
import sys
from typing import TYPE_CHECKING

try:
    import _signal as signal  # type: ignore[import-not-found]
except ImportError:
    import signal

if TYPE_CHECKING:
    from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> bool:
    """Ask Linux for something about this process; False where it cannot be had."""
    if sys.platform != "linux":
        return False
    try:
        import _ctypes  # what ctypes rests on; it takes longer to import than all else here

        entry = _ctypes.dlsym(_ctypes.dlopen(None, os.RTLD_NOW), "prctl")  # type: ignore[arg-type]
        return bool(_ctypes.call_function(entry, (option, value, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return _prctl_in_public(option, value)


def _prctl_in_public(option: int, value: int) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, AttributeError, OSError):
        return False


def parents() -> dict[int, int]:
    """Parent by process id, of every process that can be seen."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it ended meanwhile
    return found


class Command:
    """One command, held. Made by `hold`."""

    def __init__(self, pid: int, gate: int, failed: int, output: int, adopts: bool) -> None:
        self.pid = pid
        self.code: int | None = None
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        self.output = output
        """Where its output is read; it does not block."""
        self.adopts = adopts
        """Whether everything that it starts is found."""
        self._gate = gate
        self._failed = failed

    @classmethod
    def hold(cls, dispositions: dict[int, object]) -> Command:
        """Fork it in a session of its own, whatever it will be; stdin is empty, stdout and stderr are one stream.

        Args:
            dispositions: by signal, what it does about it: ignore it, or what is usual.

        Raises:
            OSError: there can be no more processes, or pipes.
        """
        adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) and os.path.isdir("/proc/self")  # noqa: PTH112
        (held, gate), (failed, failing), (output, end) = os.pipe(), os.pipe(), os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(gate)
            _become(parent, held, end, failing, dispositions)
        for theirs in (held, failing, end):
            os.close(theirs)
        os.set_blocking(output, False)
        return cls(pid, gate, failed, output, adopts)

    def let_go(self, argv: list[bytes], environment: dict[bytes, bytes], cwd: bytes) -> None:
        """Let it be this command.

        Args:
            argv: absolute path of the program, and its arguments.
            environment: all of it.
            cwd: its working directory.
        """
        text = marshal.dumps((argv, environment, cwd))
        rest = memoryview(len(text).to_bytes(8, "big") + text)
        try:
            while rest:
                rest = rest[os.write(self._gate, rest) :]
        except OSError:
            pass  # somebody ended it while it was held; its exit code will say so
        os.close(self._gate)

    def withdraw(self) -> None:
        """Have it leave without being anything, and collect it."""
        os.close(self._gate)
        os.waitpid(self.pid, 0)

    def why_not(self) -> int:
        """The error number with which the system refused to run it; 0 if it did not."""
        try:
            return int(os.read(self._failed, 16) or b"0")
        except OSError:
            return 0

    # --- everything that it started -----------------------------------------------------------------------------

    def everything(self) -> list[int]:
        """Process ids below this one, parents before their children: nobody goes on after a child's end."""
        if not self.adopts:
            return [] if self.code is not None else [self.pid]
        below: dict[int, list[int]] = {}
        for pid, parent in parents().items():
            below.setdefault(parent, []).append(pid)
        found = [os.getpid()]
        for pid in found:
            found += below.get(pid, ())
        return found[1:]

    def signal(self, number: int) -> None:
        """Signal everything: the group in one go, then what is not in it (any more, or yet: see `hold`)."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass  # nobody is in it, or (macOS) only zombies are
        for pid in self.everything():
            try:
                # Twice does no harm with SIGKILL, and a process may enter the group between the two.
                if number == signal.SIGKILL or os.getpgid(pid) != self.pid:
                    os.kill(pid, number)
            except OSError:
                continue  # it ended meanwhile, or belongs to another user

    def reap(self) -> bool:
        """Collect what ended. True when nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self._lives_on()
            if pid == 0:
                return False
            self._note(pid, status)

    def kill(self) -> None:
        """SIGKILL until nobody is left: what was forked meanwhile is found when its parent's end comes in."""
        while True:
            self.signal(signal.SIGKILL)
            try:
                self._note(*os.waitpid(-1, 0))
            except ChildProcessError:
                return

    def _note(self, pid: int, status: int) -> None:
        if pid == self.pid:
            self.code = os.waitstatus_to_exitcode(status)

    def _lives_on(self) -> bool:
        """Where orphans are not adopted: whether the group has members."""
        if self.adopts:
            return False
        try:
            os.killpg(self.pid, 0)
        except OSError:
            return False
        return True


def _become(parent: int, held: int, output: int, failing: int, dispositions: dict[int, object]) -> NoReturn:
    """The child's side of `hold`: wait at the gate, then be the command."""
    program = b""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number, disposition in dispositions.items():
            signal.signal(number, disposition if disposition == signal.SIG_IGN else signal.SIG_DFL)
        # Where nobody is told about a parent's death, its end of the gate is closed by it.
        size = _exactly(held, 8) if os.getppid() == parent else b""
        text = _exactly(held, int.from_bytes(size, "big"))
        if text:
            argv, environment, cwd = marshal.loads(text)  # noqa: S302 - from this very program
            program = argv[0]
            os.chdir(cwd)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.execve(program, argv, environment)  # noqa: S606 - the shell is what was asked for
    except OSError as error:
        if error.errno == errno.E2BIG:
            os.write(failing, str(error.errno).encode())
        else:
            os.write(output, program + f": {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _exactly(descriptor: int, size: int) -> bytes:
    """So many bytes; nothing if there are fewer."""
    got = bytearray()
    while len(got) < size:
        piece = os.read(descriptor, min(size - len(got), 1 << 20))
        if not piece:
            return b""
        got += piece
    return bytes(got)
