"""The parent of one MCP server: a script, run as `python -I -S mcp_parent.py AGENT_PID LIFELINE COMMAND ARGUMENT...`.

It stands between the agent and the server so that the server cannot outlive the agent, however the agent ends. The
server gets descriptors 0, 1 and 2 as they are; the agent talks with it directly. LIFELINE is the number of a socket
whose other end only the agent holds:

    from here   `pid N`, then `exit CODE` or `failed WHY`; then its end, when nothing of the server is left
    to here     `T`: SIGTERM to everything; its end, because the agent closed it or died: SIGKILL to everything

When the server exits, what it had started is killed. On Linux this process adopts orphans, so whatever left by
`setsid` or a double fork is found below it; elsewhere the process group has to do.

What it refuses to be: part of the package. It imports nothing of it, and little of the library: it starts once per
server, and stays.
"""

# ruff: noqa: PTH112, PTH123, PTH208, SIM105 - pathlib and contextlib take longer to import than this takes to run

import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LOOK_MS = 1000
"""How often to look whether the agent is still the parent, should its end have gone unheard; in milliseconds."""


def prctl(option: int, value: int) -> bool:
    """Ask Linux for something about this process; False where it cannot be had."""
    if sys.platform != "linux":
        return False
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


class Server:
    """The server's process, and whatever it started."""

    def __init__(self, pid: int, adopts: bool) -> None:
        self.pid = pid
        self.code: int | None = None
        self._adopts = adopts

    def below(self) -> list[int]:
        """Everything that it started, parents before their children."""
        if not self._adopts:
            return []
        children: dict[int, list[int]] = {}
        for pid, parent in parents().items():
            children.setdefault(parent, []).append(pid)
        found = [os.getpid()]
        for pid in found:
            found += children.get(pid, ())
        return found[1:]

    def signal(self, number: int) -> None:
        """Signal everything."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass  # nobody is in the group (any more)
        for pid in self.below():
            try:
                os.kill(pid, number)
            except OSError:
                continue  # it ended meanwhile, or belongs to another user

    def reap(self, flags: int = os.WNOHANG) -> bool:
        """Collect what ended. False when nothing is left to wait for."""
        while True:
            try:
                pid, status = os.waitpid(-1, flags)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)
            if flags == 0:
                return True

    def kill(self) -> None:
        """SIGKILL until nobody is left: what was forked meanwhile is found when its parent's end comes in."""
        self.signal(signal.SIGKILL)
        while self.reap(0):
            self.signal(signal.SIGKILL)


def start(argv: list[str], lifeline: int, ignored: list[int]) -> int:
    """Fork the server; the child never returns."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
            os.execvp(argv[0], argv)  # noqa: S606 - the server is what was asked for
    except (OSError, ValueError) as error:
        os.write(lifeline, f"failed {getattr(error, 'strerror', None) or error}\n".encode())
    finally:
        os._exit(127)


def main() -> None:
    """Start the server, then watch over it to its end, or the agent's."""
    agent, lifeline, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(lifeline, False)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    ours = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    ignored: list[int] = [number for number in ours if signal.signal(number, signal.SIG_IGN) == signal.SIG_IGN]
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) and os.path.isdir("/proc/self")
    if os.getppid() != agent:
        return  # it died before the death signal was asked for
    server = Server(start(argv, lifeline, ignored), adopts)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # or the agent would not see the server close them
        os.dup2(nothing, standard)
    tell(lifeline, f"pid {server.pid}\n")
    watch(server, agent, lifeline, woken)
    server.kill()
    tell(lifeline, f"exit {server.code}\n")


def watch(server: Server, agent: int, lifeline: int, woken: int) -> None:
    """Until the server exited, or the agent does not want it any more."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while server.reap() and server.code is None:
        ready = [descriptor for descriptor, _ in poll.poll(LOOK_MS)]
        if woken in ready:
            os.read(woken, 4096)
        asked = hear(lifeline) if lifeline in ready else b"-"
        if not asked or os.getppid() != agent:
            return
        if b"T" in asked:
            server.signal(signal.SIGTERM)


def hear(lifeline: int) -> bytes:
    """What the agent asks for; nothing if it is gone."""
    try:
        return os.read(lifeline, 16)
    except OSError:
        return b""  # its end was closed with something unread in it


def tell(lifeline: int, line: str) -> None:
    """Tell the agent, if it is there."""
    try:
        os.write(lifeline, line.encode())
    except OSError:
        pass  # the agent is gone; the lifeline's end says so too


if __name__ == "__main__":
    main()
