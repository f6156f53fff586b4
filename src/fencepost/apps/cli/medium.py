"""Whether a directory keeps what fencepost promises: found out by doing it there, and by killing a child at the gates.

    locks    a lock that this process holds is refused to another one
    syncs    fdatasync on a file and fsync on a directory are taken
    kills    a child runs a real turn on a store inside that directory and is killed with SIGKILL at each gate; while it
             lives its session must be held, when it is dead free, and the log must say what really happened

All of it happens in a temporary directory inside the store's own, hidden from listings and removed at the end. Where
that does not exist, in the nearest directory above it that does. Where a store has no directory on this host, what its
engine says of itself has to do.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from fencepost.apps.cli.probe import GATES, HERE
from fencepost.core.verdict import Verdict
from fencepost.errors import FencepostError, HeldError
from fencepost.journal.inspect import inspect
from fencepost.stores.base import Footed, Footing, Store
from fencepost.stores.urls import open_store

SECONDS = 20.0
"""How long a child may take to reach its gate."""

EXPECTED: dict[str, list[Verdict]] = {"request": [], "tool": ["outcome_unknown"], "result": ["completed"]}
"""What the log must say about the child's calls after it was killed at a gate."""


_OCTAL = re.compile(r"\\([0-7]{3})")
"""How a mount's name has its blanks."""


class Kill(msgspec.Struct, frozen=True):
    """One child that was killed."""

    gate: str
    ok: bool
    detail: str


class Medium(msgspec.Struct, frozen=True):
    """What is known of the place where sessions are kept. `locks` and `syncs` are null where nothing was tried.

    Attributes:
        settings: what the store's engine says of itself.
        problems: with which of it nothing can be promised, one sentence each.
    """

    path: str | None
    filesystem: str
    locks: bool | None
    syncs: bool | None
    kills: tuple[Kill, ...]
    ok: bool
    detail: str = ""
    settings: dict[str, str] = {}
    problems: tuple[str, ...] = ()


NOTHING = Footing(note="this store has no directory to try")


async def examine_medium(store: Store, progress: Callable[[str], None]) -> Medium:
    """Try the place of `store`; changes nothing of the store.

    Args:
        store: whose place.
        progress: told what is tried now.
    """
    footing = await store.footing() if isinstance(store, Footed) else NOTHING
    scheme = store.url.partition(":")[0]
    if footing.directory is None:
        found = Medium(None, store.url, None, None, (), ok=True, detail=footing.note)
    else:
        found = await _try_out(footing.directory, scheme, progress)
    ok = found.ok and not footing.problems
    return msgspec.structs.replace(found, ok=ok, settings=footing.settings, problems=footing.problems)


async def _try_out(place: Path, scheme: str, progress: Callable[[str], None]) -> Medium:
    while not place.is_dir() and place != place.parent:
        place = place.parent
    filesystem = filesystem_of(place)
    try:
        trial = Path(tempfile.mkdtemp(prefix=".fencepost-doctor-", dir=place))
    except OSError as error:
        return Medium(str(place), filesystem, None, None, (), ok=False, detail=f"nothing can be made there: {error}")
    try:
        progress(f"trying {place} ({filesystem})")
        locks, syncs = await locks_hold(trial), syncs_work(trial)
        kills = []
        for gate in GATES:
            progress(f"killing a child at the {gate} gate")
            kills.append(await killed_at(gate, f"{scheme}:{trial / 'store'}"))
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    ok = locks and syncs and all(kill.ok for kill in kills)
    return Medium(str(place), filesystem, locks, syncs, tuple(kills), ok=ok)


def filesystem_of(path: Path) -> str:
    """The type of the file system that a path is on; `unknown` where there is nothing to ask."""
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except OSError:
        return "unknown"
    best, kind, path = "", "unknown", path.resolve()
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1])
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


async def locks_hold(trial: Path) -> bool:
    """Whether another process is refused a lock that this one holds."""
    path = trial / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        said, _ = await asyncio.to_thread(_child("lock", str(path)).communicate)
        return bool(said.strip() == b"held")
    except OSError:
        return False  # locks are not taken here at all
    finally:
        os.close(fd)


def syncs_work(trial: Path) -> bool:
    """Whether this file system takes the syncs that a gate waits for."""
    try:
        for path, flags, sync in (
            (trial / "lock", os.O_RDWR, os.fdatasync),
            (trial, os.O_RDONLY | os.O_DIRECTORY, os.fsync),
        ):
            fd = os.open(path, flags | os.O_CLOEXEC)
            try:
                sync(fd)
            finally:
                os.close(fd)
    except OSError:
        return False
    return True


async def killed_at(gate: str, url: str) -> Kill:
    """Let a child run up to `gate`, kill it, and compare the log with what happened."""
    session = f"probe-{gate}"
    child = _child("at", gate, url, session)
    try:
        problem = await _reached(child) or await _while(url, session, _is_held)
    finally:
        child.kill()
        await asyncio.to_thread(child.communicate)
    problem = problem or await _while(url, session, _tells_the_truth(gate))
    return Kill(gate, problem is None, problem or "held while alive, free when dead, the log is right")


def _child(*arguments: str) -> subprocess.Popen[bytes]:
    """The probe; it sees the end of its standard input when this process is gone, whatever ended it."""
    return subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
        [sys.executable, "-m", "fencepost.apps.cli.probe", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def _reached(child: subprocess.Popen[bytes]) -> str | None:
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        line = await asyncio.wait_for(asyncio.to_thread(child.stdout.readline), SECONDS)
    except TimeoutError:
        return f"the child did not get there within {SECONDS:g} s"
    if line.strip().decode() == HERE:
        return None
    said = (await asyncio.to_thread(child.stderr.read)).decode(errors="replace").strip().splitlines()
    return f"the child ended before: {said[-1] if said else 'it said nothing'}"


Check = Callable[[Store, str], Awaitable[str | None]]


async def _while(url: str, session: str, check: Check) -> str | None:
    """Run a check on a store of its own; what it raises is a problem too."""
    store = open_store(url)
    try:
        return await check(store, session)
    except FencepostError as error:
        return error.explain()
    finally:
        await store.close()


async def _is_held(store: Store, session: str) -> str | None:
    try:
        await store.own(session)
    except HeldError:
        return None
    return "the session of a living process could be taken"


def _tells_the_truth(gate: str) -> Check:
    async def check(store: Store, session: str) -> str | None:
        found = await inspect(store, session)
        verdicts = [call.verdict for call in found.calls]
        if found.state != "interrupted" or verdicts != EXPECTED[gate]:
            return f"the log says {found.state}, {verdicts or 'no calls'}; right is {EXPECTED[gate] or 'no calls'}"
        handle = await store.own(session)
        await handle.release()
        return None

    return check
