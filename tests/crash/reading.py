"""A copy, judged in memory: what `judging` learns from a directory, from the same pure functions, without a directory.

For power cuts, of which there are tens of thousands. The store's own reading runs over a disk that is a dictionary; the
repair is `core.repair`, appended to a log in memory.
"""

import os
from pathlib import Path

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import expand
from fencepost.core.lifecycle import State
from fencepost.core.projection import request
from fencepost.core.repair import closers
from fencepost.core.verdict import verdicts
from fencepost.errors import DamagedError
from fencepost.journal.inspect import examine, fold_stored
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl import Disk
from fencepost.stores.jsonl.layout import SessionPaths
from fencepost.stores.jsonl.loading import load
from tests.crash.judging import Judged, events_of, log_of
from tests.crash.scenario import SESSION

_SOME_STAT = Path("/").stat()


class RememberedDisk(Disk):
    """Files that are not there, for reading only."""

    def __init__(self, files: dict[Path, bytes]) -> None:
        self._files = files

    def stat(self, path: Path) -> os.stat_result:
        self.read(path)
        return _SOME_STAT

    def read(self, path: Path, start: int = 0, limit: int | None = None) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path][start : None if limit is None else start + limit]

    def names(self, path: Path) -> list[str]:
        return [file.name for file in self._files if file.parent == path]


def look(files: dict[Path, bytes], root: Path) -> Judged:
    """What these files hold."""
    paths = SessionPaths(root, SESSION)
    if paths.log not in files:
        return Judged()
    stored = load(RememberedDisk(files), paths, SESSION, None).stored
    return Judged(stored=stored, events=events_of(stored))


def judge_in_memory(judged: Judged) -> Judged:
    """What a fresh process would make of it, up to the repair: a function of its events, evidence and damage."""
    stored = judged.stored
    if stored is None:
        return judged
    judged.view = examine(fold_stored(stored))
    if stored.damage:
        judged.refused = DamagedError(str(stored.damage[0]))
        return judged
    return _repaired(judged)


def _repaired(judged: Judged) -> Judged:
    stored = judged.stored
    assert stored is not None
    log = log_of(stored, judged.events)
    fold = log.fold
    if fold.state is not State.IDLE:
        assert fold.owner is not None
        assert fold.turn is not None
        turn = fold.turn.number
        judged.found = {
            item.call.call_id: item.verdict for item in verdicts(fold, stored.evidence) if item.call.turn == turn
        }
        owed = closers(fold, stored.evidence)
        log.append(ev.SessionOwner, owner="second", epoch=fold.owner.epoch + 1, resumed=True)
        for closer in owed:
            log.append(closer.cls, **closer.fields)
        assert closers(log.fold, stored.evidence) == [], "a repair that leaves something to repair"
    judged.repaired = [event for entry in log.entries for event in expand(entry)]
    judged.after = examine(fold_stored(_with(stored, judged.repaired)))
    if fold.header is not None:
        judged.requests = [request(log)]
    return judged


def _with(stored: StoredLog, events: list[ev.Event]) -> StoredLog:
    return msgspec.structs.replace(stored, entries=events, tail_bytes=0)
