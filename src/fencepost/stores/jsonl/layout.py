"""Names: which files a session has.

Each session is a directory, named by the segment of its id (`stores.names`). The true id of a shortened name stands in
the header inside.
"""

from __future__ import annotations

import re
from pathlib import Path

LOGS = ("log.jsonl", "log.jsonl.zst")
"""A session's log, plain or compressed. Where both are there a crash left the second, and the first counts."""

_SIDE_FILE = re.compile(r"tail-(\d+)-(\d+)\.bin")


class SessionPaths:
    """The files of one session."""

    def __init__(self, root: Path, name: str) -> None:
        self.dir = root / name
        self.log, self.packed = (self.dir / name for name in LOGS)
        self.draft = self.dir / "log.draft"
        """A new log before it is linked into place."""
        self.packed_draft = self.dir / "log.zst.draft"
        self.lock = self.dir / "lock"
        self.watermark = self.dir / "watermark"

    def original(self, number: int) -> Path:
        """Where the log stays as it was, in an older format, when it is rewritten."""
        return self.dir / f"log.format{number}.jsonl"

    def side_file(self, seq: int, offset: int) -> Path:
        """Where the torn bytes go that stood at `offset`, where `seq` would have been next."""
        return self.dir / f"tail-{seq}-{offset}.bin"


def side_file_seq(name: str) -> int | None:
    """The seq in a side file's name, or None for any other file."""
    match = _SIDE_FILE.fullmatch(name)
    return int(match[1]) if match else None
