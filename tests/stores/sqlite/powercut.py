"""What a power cut can leave of a database: every boundary between two operations, and what was not synced by then lost
in many ways.

The model. A file has the bytes of its last sync, and of the writes that came later any of them, each 512-byte sector
for itself. The directory has the names of its last sync, and of the changes that came later any prefix. Files lose
independently of each other, and of the names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.stores.sqlite.medium import Op

SECTOR = 512


@dataclass
class _File:
    durable: bytes = b""
    pending: list[Op] = field(default_factory=list)


@dataclass(frozen=True)
class Cut:
    """One state.

    Attributes:
        after: how many operations had happened.
        acknowledged: the last mark before the cut.
        files: what is in the directory then.
    """

    after: int
    acknowledged: tuple[int, ...]
    files: tuple[tuple[str, bytes], ...]

    def restore(self, place: Path) -> None:
        """Put the files there, and no others."""
        place.mkdir(exist_ok=True)
        for path in place.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in self.files:
            (place / name).write_bytes(content)


def cuts(ops: list[Op], *, seed: int, many: int) -> Iterator[Cut]:
    """Different states, as far as the acknowledged is concerned too.

    Args:
        many: how often the dice are thrown at each boundary, beside all lost and all kept.
    """
    dice = random.Random(seed)
    machine = _Machine()
    seen = set()
    for after, op in enumerate(ops, 1):
        machine.take(op)
        for chance in (0.0, 1.0, *[dice.choice((0.1, 0.5, 0.9)) for _ in range(many)]):
            cut = Cut(after, machine.acknowledged, machine.survivors(dice, chance))
            if (state := (cut.acknowledged, cut.files)) not in seen:
                seen.add(state)
                yield cut


class _Machine:
    def __init__(self) -> None:
        self.acknowledged: tuple[int, ...] = ()
        self.inodes: list[_File] = []
        self.named: dict[str, _File] = {}
        self.durable: dict[str, _File] = {}
        self.renaming: list[tuple[str, _File | None]] = []

    def take(self, op: Op) -> None:
        if op.kind == "mark":
            self.acknowledged = op.mark
        elif op.kind == "name":
            self.named[op.file] = _File()
            self.renaming.append((op.file, self.named[op.file]))
        elif op.kind == "unname":
            del self.named[op.file]
            self.renaming.append((op.file, None))
        elif op.kind == "sync_names":
            self.durable, self.renaming = dict(self.named), []
        elif op.kind == "sync":
            file = self.named[op.file]
            for pending in file.pending:
                file.durable = _applied(file.durable, pending)
            file.pending = []
        else:
            self.named[op.file].pending.append(op)

    def survivors(self, dice: random.Random, chance: float) -> tuple[tuple[str, bytes], ...]:
        names = dict(self.durable)
        for name, file in self.renaming[: round(len(self.renaming) * chance)]:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
        return tuple(sorted((name, self._content(file, dice, chance)) for name, file in names.items()))

    def _content(self, file: _File, dice: random.Random, chance: float) -> bytes:
        content = file.durable
        for op in file.pending:
            if op.kind == "truncate":
                content = _applied(content, op) if dice.random() < chance else content
                continue
            for start in range(0, len(op.data), SECTOR):
                if dice.random() < chance:
                    part = op.data[start : start + SECTOR]
                    content = _applied(content, Op("write", op.file, part, op.offset + start))
        return content


def _applied(content: bytes, op: Op) -> bytes:
    if op.kind == "truncate":
        return content[: op.offset].ljust(op.offset, b"\0")
    return content[: op.offset].ljust(op.offset, b"\0") + op.data + content[op.offset + len(op.data) :]
