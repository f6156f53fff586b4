"""One command and all that it started, from its supervisor's side: held at its start, signalled, collected.

The command is forked first and held until `let_go`: whoever starts it can make durable which process it is before it
does anything. If its supervisor dies before that it leaves without having started.

Everything that a command started: on Linux the supervisor adopts orphans (PR_SET_CHILD_SUBREAPER), so whatever left the
group by `setsid` or a double fork is still found below it. Elsewhere it is the process group. Only what another user
owns (sudo) escapes. If the supervisor is killed itself, the command dies by its own death signal, but what the command
started in the background may not.
"""

# ruff: noqa: PTH123, PTH208, SIM105

import errno
import os
import sys

try:
    import _signal as signal  # type: ignore[import-not-found]
except ImportError:
    import signal

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

    def __init__(self, pid: int, gate: int, failed: int, adopts: bool) -> None:
        self.pid = pid
        self.code: int | None = None
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        self._gate = gate
        self._failed = failed
        self._adopts = adopts

    @property
    def adopts(self) -> bool:
        """Whether everything that it starts is found."""
        return self._adopts

    @classmethod
    def hold(
        cls, argv: list[bytes], environment: dict[bytes, bytes], output: int, dispositions: dict[int, object]
    ) -> "Command":
        """Fork it in a session of its own; stdin is empty, stdout and stderr are `output`.

        Args:
            argv: absolute path of the program, and its arguments.
            environment: all of it.
            output: where it writes.
            dispositions: by signal, what it does about it: ignore it, or what is usual.

        Raises:
            OSError: there can be no more processes, or pipes.
        """
        adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) and os.path.isdir("/proc/self")  # noqa: PTH112
        held, gate = os.pipe()
        failed, failing = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(gate)
            _become(parent, argv, environment, (output, held, failing), dispositions)
        os.close(held)
        os.close(failing)
        return cls(pid, gate, failed, adopts)

    def let_go(self) -> None:
        """Let it start."""
        try:
            os.write(self._gate, b"G")
        except OSError:
            pass  # somebody ended it while it was held; its exit code will say so
        os.close(self._gate)

    def withdraw(self) -> None:
        """Have it leave without starting, and collect it."""
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
        if not self._adopts:
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
        if self._adopts:
            return False
        try:
            os.killpg(self.pid, 0)
        except OSError:
            return False
        return True


def _become(
    parent: int,
    argv: list[bytes],
    environment: dict[bytes, bytes],
    ends: tuple[int, int, int],
    dispositions: dict[int, object],
) -> None:
    """The child's side of `hold`: wait for the gate, then be the command. Never returns."""
    output, held, failing = ends
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number, disposition in dispositions.items():
            signal.signal(number, disposition if disposition == signal.SIG_IGN else signal.SIG_DFL)
        # Whoever cannot be told about the parent's death looks at the gate, whose end its death is too.
        if os.getppid() == parent and os.read(held, 1) == b"G":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.execve(argv[0], argv, environment)  # noqa: S606 - the shell is what was asked for
    except OSError as error:
        if error.errno == errno.E2BIG:
            os.write(failing, str(error.errno).encode())
        else:
            os.write(output, argv[0] + f": {error.strerror}\n".encode())
    finally:
        os._exit(127)
