"""The tiny parent of one command: a script, run as `python -I -S shell_parent.py AGENT_PID SHELL -c COMMAND`.

It stands between the agent and the command so that the command cannot outlive the agent. It starts the command in a
session and process group of its own, then waits for one of these:

    the command exited                    say so; stay while something that it started still lives
    `T` on the lifeline                   SIGTERM to everything that the command started
    the lifeline's end: the agent closed it, or died           SIGKILL to everything, and leave
    the death signal of its own parent (Linux)                 the same

Descriptors: 0 is the lifeline, whose other end only the agent holds; 1 is where the command writes; 2 is where this
script reports, in lines: `pid N`, `exit CODE [left]`, and whatever went wrong. Its own end is the report's end.

Everything that the command started: on Linux this process adopts orphans (PR_SET_CHILD_SUBREAPER), so whatever
left the group by `setsid` or a double fork is still found below it. Elsewhere it is the process group. Only what
another user owns (sudo) escapes. If this script is killed itself, the command dies by its own death signal, but
what the command started in the background may not.

What it refuses to be: part of the package. It imports nothing of it and as little as possible of the library, for it
is started once per command: `_signal` and `_ctypes` are what `signal` and `ctypes` rest on, and spare 15 of 37 ms.
"""

# pathlib and contextlib take longer to import than this script takes to run.
# ruff: noqa: PTH112, PTH123, PTH208, SIM105

import os
import select
import sys

try:
    import _signal as signal  # type: ignore[import-not-found]
except ImportError:
    import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
IDLE_LOOK_MS = 50
"""Where orphans are not adopted: how often to look whether the group still lives, in milliseconds."""


def prctl(option: int, value: int) -> bool:
    """Ask Linux for something about this process; False where it cannot be had."""
    if sys.platform != "linux":
        return False
    try:
        import _ctypes

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


def report(line: str) -> None:
    """Tell the agent, if it is there."""
    try:
        os.write(2, line.encode())
    except OSError:
        pass  # the agent is gone; the lifeline says so too


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
    """One command and all that it started."""

    def __init__(self, pid: int, adopts: bool) -> None:
        self.pid = pid
        self.exited = False
        self._adopts = adopts

    def everything(self) -> list[int]:
        """Process ids below this one, parents before their children: nobody goes on after a child's end."""
        if not self._adopts:
            return [] if self.exited else [self.pid]
        below: dict[int, list[int]] = {}
        for pid, parent in parents().items():
            below.setdefault(parent, []).append(pid)
        found = [os.getpid()]
        for pid in found:
            found += below.get(pid, ())
        return found[1:]

    def signal(self, number: int) -> None:
        """Signal everything: the group in one go, then what is not in it (any more, or yet: see `start`)."""
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
        """Collect what ended and report the command's own end. True when nothing is left."""
        ended = None
        alone = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                alone = not self._lives_on()
                break
            if pid == 0:
                break
            if pid == self.pid:
                ended = os.waitstatus_to_exitcode(status)
        if ended is not None:
            self.exited = True
            report(f"exit {ended}\n" if alone else f"exit {ended} left\n")
        return alone

    def _lives_on(self) -> bool:
        """Where orphans are not adopted: whether the group has members."""
        if self._adopts:
            return False
        try:
            os.killpg(self.pid, 0)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL until nobody is left: what was forked meanwhile is found when its parent's end comes in."""
        while True:
            self.signal(signal.SIGKILL)
            try:
                self.exited |= os.waitpid(-1, 0)[0] == self.pid
            except ChildProcessError:
                return


def start(argv: list[str], dispositions: dict[int, object]) -> int:
    """Fork the command; the child never returns."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            for number, disposition in dispositions.items():
                signal.signal(number, disposition if disposition == signal.SIG_IGN else signal.SIG_DFL)
            os.dup2(1, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execv(argv[0], argv)  # noqa: S606 - the shell is what was asked for
    except OSError as error:
        os.write(1, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def main() -> None:
    """Start the command, then wait for what the table at the top names."""
    agent, argv = int(sys.argv[1]), sys.argv[2:]
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    dispositions: dict[int, object] = {signal.SIGPIPE: signal.SIG_DFL, signal.SIGXFSZ: signal.SIG_DFL}
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        dispositions[number] = signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) and os.path.isdir("/proc/self")
    if os.getppid() != agent:
        return  # it died before the death signal was asked for
    command = Command(start(argv, dispositions), adopts)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    report(f"pid {command.pid}\n")
    watch(command, agent, woken, None if adopts else IDLE_LOOK_MS)


def watch(command: Command, agent: int, woken: int, idle: int | None) -> None:
    """Until nothing is left of the command, or the agent does not want it any more."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while not command.reap():
        ready = [fd for fd, _ in poll.poll(idle)]
        if woken in ready:
            os.read(woken, 4096)
        asked = os.read(0, 16) if 0 in ready else b"-"
        if not asked or os.getppid() != agent:
            command.kill()
            return
        if b"T" in asked:
            command.signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
