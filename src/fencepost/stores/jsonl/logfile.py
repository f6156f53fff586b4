"""One log as its owner sees it: how a batch becomes durable, and what happens when that fails.

Rules:
    1. Batch and commit line go out in one write, then one sync; only after that is the batch acknowledged.
    2. Before each write the file must be the very one, of the very length, that this owner left. Otherwise somebody
       else wrote, and nothing more of this owner lands (law 8).
    3. A failed write is rolled back to the length before, and synced. If that fails too, this owner is finished:
       what is in the file cannot be known.
    4. After a failed sync the descriptor is dead, because the kernel may report the next one as fine with the data
       gone. The file is opened afresh, looked at, and cut to what was acknowledged; the batch is written whole again.
    5. A new log is written beside its place, synced, and linked into it: header and first batch appear together.
    6. What is known of lost bytes is in a side file, durably, before the first append makes the log look whole again.

It is synchronous, and but for `hint` one thread at a time uses it; threads and waiting are the handle's business.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import (
    LostOwnershipError,
    PoisonedError,
    SessionExistsError,
    StoreError,
)
from fencepost.stores.batches import batch_lines
from fencepost.stores.causes import typed
from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.frame import commit_line
from fencepost.stores.jsonl.layout import SessionPaths
from fencepost.stores.jsonl.loading import HINT, Loaded
from fencepost.stores.jsonl.renewing import Outdated, in_bites, renew_log
from fencepost.stores.jsonl.wholefile import again, write_all, write_file


class LogFile:
    """The owner's end of one session's log.

    Made by `new` or `existing`. Attributes: `next_seq`, the seq that the next entry has to have.
    """

    def __init__(self, disk: Disk, paths: SessionPaths, session: str) -> None:
        self.next_seq = 0
        self._disk = disk
        self._paths = paths
        self._session = session
        self._fd = -1
        self._hint_fd = -1
        self._hint_lock = threading.Lock()
        self._hinted = -1
        self._inode: int | None = None
        """Of the log; None as long as there is no file."""
        self._length = 0
        """Bytes of the file as this owner left it."""
        self._crc = 0
        """Over what the next commit line has to cover and is written already, or owed."""
        self._owed = b""
        """Bytes that have to stand before the next batch: the header, or a missing newline."""
        self._torn: bytes | None = None
        """The torn tail that is still to be set aside. Empty: no bytes, but some are known to be missing."""
        self._packed: bytes | None = None
        """The log's bytes, where its file is the compressed one."""
        self._outdated: Outdated | None = None
        """The log as it was read, where its file is in an older format."""
        self._renewing = False
        self._unsynced = b""
        """What a failed sync may have left behind `_length`, whole, in part or as NULs."""
        self._refusal: tuple[type[StoreError], str] | None = None

    @classmethod
    def new(cls, disk: Disk, paths: SessionPaths, header: ev.Header) -> LogFile:
        """A log that its first append will make."""
        log = cls(disk, paths, header.session)
        log._owed = codec.encode(header) + b"\n"
        log._crc = zlib.crc32(log._owed)
        return log

    @classmethod
    def existing(cls, disk: Disk, paths: SessionPaths, loaded: Loaded) -> LogFile:
        """A log that was read under the lock."""
        framed = loaded.framed
        log = cls(disk, paths, loaded.stored.session)
        log.next_seq = framed.next_seq
        log._hinted = framed.next_seq - 1  # owning is no append: the file stays as it is
        log._inode = loaded.stat.st_ino
        log._length = loaded.length
        log._packed = loaded.packed
        log._outdated = loaded.outdated()
        log._crc = framed.crc
        log._owed = b"\n" if framed.owes_newline else b""
        log._torn = framed.torn if loaded.missing else None
        log._refusal = loaded.refusal()
        return log

    # --- the promise --------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[ev.Entry], expected_seq: int) -> None:
        """Make one batch durable: the contract of `Handle.append`."""
        self._refuse()
        if expected_seq != self.next_seq:
            raise LostOwnershipError(
                f"session {self._session}: seq {expected_seq} was to be appended where {self.next_seq} is next"
            )
        self._modernise()
        batch, next_seq = self._batch(entries)
        if self._inode is None:
            self._create(batch)
        else:
            if self._torn is not None:
                self.set_aside()
            self._extend(batch)
        self._length += len(batch)
        self._owed = b""
        self._crc = 0
        self.next_seq = next_seq

    def set_aside(self) -> int:
        """Move the torn tail into a side file and cut it off: the contract of `Handle.set_aside`."""
        self._refuse()
        torn = self._torn
        if torn is None:
            return 0
        if self._outdated is not None:
            self._modernise()
            return len(torn)
        self._unpack()
        fd = self._opened()
        self._compare(fd)
        self._keep_aside(torn)
        if torn:
            self._cut_torn(fd, len(torn))
        self._torn = None
        return len(torn)

    def _cut_torn(self, fd: int, count: int) -> None:
        with self._typed("cutting the torn tail off"):
            again(self._disk.truncate, fd, self._length - count)
        self._length -= count
        self._torn = b""
        try:
            again(self._disk.sync_data, fd)
        except OSError as error:
            self._close(fd)
            self._fd = -1
            raise self._cause(error, "syncing") from error

    def hint(self) -> None:
        """Note the acknowledged seq beside the log, unsynced.

        It comes after the sync, so it is never ahead of what is durable; where the log later ends before it,
        acknowledged bytes were cut off. It only ever adds doubt, so a failure to write it takes nothing away, and
        nobody waits for it: another thread may be busy with the next batch meanwhile.
        """
        with self._hint_lock:
            last = self.next_seq - 1
            if last <= self._hinted:
                return
            try:
                if self._hint_fd < 0:
                    self._hint_fd = self._disk.open_hint(self._paths.watermark)
                self._disk.overwrite(self._hint_fd, HINT % last, 0)
            except OSError:
                return
            self._hinted = last

    def close(self) -> None:
        """Let the descriptors go. Idempotent."""
        self.hint()
        with self._hint_lock:
            self._hinted = sys.maxsize  # a thread that comes late finds nothing to do
            for fd in (self._fd, self._hint_fd):
                if fd >= 0:
                    self._close(fd)
            self._fd = self._hint_fd = -1

    # --- encoding -----------------------------------------------------------------------------------------------

    def _batch(self, entries: Sequence[ev.Entry]) -> tuple[bytes, int]:
        """The bytes of a batch, its commit line included, and the seq that follows it.

        The first one makes the whole file, and a fork or a copy brings all of its entries at once.
        """
        if self._inode is None:
            return in_bites(self._session, self._owed, entries)
        lines, seq = batch_lines(self._session, entries, self.next_seq)
        return b"".join((self._owed, lines, commit_line(seq - 1, zlib.crc32(lines, self._crc)))), seq

    # --- an existing file ---------------------------------------------------------------------------------------

    def _extend(self, batch: bytes) -> None:
        """Compare, write, sync. Straight-line code: after each sync the caches are cold, and every call counts."""
        fd = self._fd if self._fd >= 0 else self._opened()
        self._compare(fd)
        try:
            write_all(self._disk, fd, batch)
        except OSError as error:
            self._roll_back(fd, error)
            raise self._cause(error, "writing to") from error
        try:
            again(self._disk.sync_data, fd)
        except OSError as error:
            self._abandon(batch)
            raise self._cause(error, "syncing") from error

    def _compare(self, fd: int) -> None:
        """Look at the file before writing to it (rule 2)."""
        try:
            stat = self._disk.fstat(fd)
        except OSError as error:
            raise self._cause(error, "looking at") from error
        if not stat.st_nlink:
            raise self._finish(LostOwnershipError, "its log was deleted, or replaced by another file")
        if stat.st_size != self._length:
            why = f"its log has {stat.st_size} bytes where this writer left {self._length}: somebody else wrote"
            raise self._finish(LostOwnershipError, why)

    def _roll_back(self, fd: int, cause: OSError) -> None:
        try:
            again(self._disk.truncate, fd, self._length)
            again(self._disk.sync_data, fd)
        except OSError as error:
            why = f"a failed write ({os.strerror(cause.errno or 0)}) could not be rolled back: {error}"
            raise self._finish(PoisonedError, why) from error

    def _abandon(self, batch: bytes) -> None:
        """The sync of `batch` failed. Nobody may take those bytes for durable, so they are cut off at once if that
        works, and otherwise before the next append.
        """
        self._close(self._fd)
        self._fd = -1
        self._unsynced = batch
        with contextlib.suppress(StoreError):
            self._opened()

    def _opened(self) -> int:
        """The open descriptor; after a failed sync, a fresh one of a file that ends where it was acknowledged."""
        if self._fd >= 0:
            return self._fd
        try:
            fd = self._disk.open_log(self._paths.log)
        except FileNotFoundError:
            raise self._finish(LostOwnershipError, "its log is no longer there") from None
        except OSError as error:
            raise self._cause(error, "opening") from error
        try:
            if self._disk.fstat(fd).st_ino != self._inode:
                raise self._finish(LostOwnershipError, "another file stands in the place of its log")
            if self._unsynced:
                self._cut_unsynced(fd)
        except OSError as error:
            self._close(fd)
            raise self._cause(error, "reading back") from error
        except StoreError:
            self._close(fd)
            raise
        self._fd = fd
        return fd

    def _cut_unsynced(self, fd: int) -> None:
        left = self._disk.read(self._paths.log, self._length)
        if not _is_left_of(left, self._unsynced):
            raise self._finish(LostOwnershipError, "its log ends in bytes that this writer never wrote")
        again(self._disk.truncate, fd, self._length)
        self._unsynced = b""

    def _unpack(self) -> None:
        """Put a compressed log back into its plain form, before anything of it changes."""
        if self._packed is None:
            return
        from fencepost.stores.jsonl.packing import restore_log  # most stores have no such log

        with self._typed("unpacking", self._paths.packed):
            self._inode = restore_log(self._disk, self._paths, self._packed)
        self._packed = None

    def _modernise(self) -> None:
        """Bring the file into the form that this release appends to: plain, and of its own format."""
        self._unpack()
        if self._outdated is None:
            return
        if not self._renewing:  # else an attempt that failed may have put the new one there already
            self._compare(self._opened())
            if self._torn is not None:
                self._keep_aside(self._torn)
            self._close(self._fd)
            self._fd, self._renewing = -1, True
        with self._typed("rewriting"):
            self._inode, self._length = renew_log(self._disk, self._paths, self._outdated)
        self._outdated = self._torn = None
        self._owed, self._crc = b"", 0

    # --- a new file ---------------------------------------------------------------------------------------------

    def _create(self, batch: bytes) -> None:
        paths, disk = self._paths, self._disk
        with self._typed("making", paths.draft):
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(paths.draft)  # of an owner that was killed here
            fd = disk.create(paths.draft)
        linked = False
        try:
            write_all(self._disk, fd, batch)
            again(disk.sync_data, fd)
            disk.link(paths.draft, paths.log)
            linked = True
            disk.unlink(paths.draft)
            disk.sync_dir(paths.dir)
            disk.sync_dir(paths.dir.parent)
            inode = disk.fstat(fd).st_ino
        except OSError as error:
            self._close(fd)
            self._take_back(error, linked=linked)
            if isinstance(error, FileExistsError):
                raise SessionExistsError(f"session {self._session} is there already: {paths.log}") from error
            raise self._cause(error, "making") from error
        self._fd = fd
        self._inode = inode

    def _take_back(self, cause: OSError, *, linked: bool) -> None:
        """Undo a half-made log, so that the next append makes it whole."""
        with contextlib.suppress(OSError):  # left behind, a draft is invisible and the next owner removes it
            self._disk.unlink(self._paths.draft)
        if not linked:
            return
        try:
            self._disk.unlink(self._paths.log)
        except OSError as error:
            why = f"a new log ({os.strerror(cause.errno or 0)}) could not be taken back: {error}"
            raise self._finish(PoisonedError, why) from error

    # --- companions ---------------------------------------------------------------------------------------------

    def _keep_aside(self, torn: bytes) -> None:
        """Write the side file, whole or not at all. One that is there from an earlier crash is added to."""
        disk = self._disk
        target = self._paths.side_file(self.next_seq, self._length - len(torn))
        draft = target.with_suffix(".draft")
        with self._typed("keeping the torn tail in", target):
            content = torn
            with contextlib.suppress(FileNotFoundError):
                earlier = disk.read(target)
                content = earlier if earlier.endswith(torn) else earlier + torn
            write_file(disk, draft, content)
            disk.rename(draft, target)
            disk.sync_dir(self._paths.dir)

    # --- failing ------------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        if self._refusal is not None:
            kind, why = self._refusal
            raise kind(why)

    def _finish(self, kind: type[StoreError], why: str) -> StoreError:
        """From now on every call raises this."""
        self._refusal = (kind, f"session {self._session}: {why}")
        return kind(self._refusal[1])

    def _cause(self, error: OSError, doing: str, path: Path | None = None) -> StoreError:
        return typed(error, self._session, doing, path or self._paths.log)

    @contextlib.contextmanager
    def _typed(self, doing: str, path: Path | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._cause(error, doing, path) from error

    def _close(self, fd: int) -> None:
        with contextlib.suppress(OSError):  # what mattered was synced, or is reported already
            self._disk.close(fd)


def _is_left_of(left: bytes, sent: bytes) -> bool:
    """Whether `left` is what a failed sync can leave of `sent`: a part of it, with NULs where pages were dropped."""
    if len(left) > len(sent):
        return False
    return sent.startswith(left) or all(byte in (0, meant) for byte, meant in zip(left, sent, strict=False))
