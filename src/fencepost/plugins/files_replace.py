"""Replacing a file whole and durably, or not at all.

A receipt is left first. Then the new content is written under a name of its own and synced, renamed over the old file,
and the directory is synced: a reader, a crash or a power cut sees the old file or the new one. Until then it waits in
the deepest directory that is there already, so that what fails leaves no new directories either.

Mode, and the owner where we may, are kept; a symbolic link was followed and stays; other hard links to the old file
keep the old content. New directories are synced into their parents.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from fencepost.plugins.file_receipts import Found, Receipt, announce, content_of, directory_at, leave, waiting_in
from fencepost.plugins.files_disk import make_directories, nearest, sync, sync_directory
from fencepost.plugins.files_place import IO, Refusal
from fencepost.runtime.tools import CallContext

CHANGED = "CHANGED"


class Change(msgspec.Struct, frozen=True):
    """What is to be done to one file.

    Attributes:
        place: the file, without symbolic links.
        path: the same in the model's words.
        old: the file as it was when the decision was made; None if there was none.
        before: the same, with its content, for the receipt.
        data: its new content.
        said: what the call answers when it is done.
        unchanged: refuse if it is not like `old` any more.
    """

    place: Path
    path: str
    old: os.stat_result | None
    before: Found | None
    data: bytes
    said: str
    unchanged: bool = False

    @property
    def mode(self) -> int:
        """Of the new file; where there was none, less the umask."""
        return 0o666 if self.old is None else stat.S_IMODE(self.old.st_mode)


def replace(context: CallContext, change: Change) -> None:
    """Make a change, or leave everything as it was.

    Raises:
        Refusal: no receipt could be left; the file changed meanwhile; or it was replaced and may not survive a power
            cut.
        OSError: the system refused it.
    """
    place = change.place
    directory = nearest(place)
    waiting = waiting_in(directory)
    receipt = Receipt(
        place=str(place),
        before=change.before,
        after=content_of(change.data),
        mode=change.mode,
        waiting=str(waiting),
        directory=directory_at(directory),
        said=change.said,
    )
    leave(context.files, context.call_id, receipt, change.path)
    try:
        _write(waiting, change)
        make_directories(place.parent)
        if change.unchanged and change.old is not None and _changed(place, change.old):
            raise Refusal(CHANGED, f"{change.path}: it was changed meanwhile by something else; read it again.")
        announce(context.files, context.call_id)
        waiting.replace(place)
    except BaseException:
        waiting.unlink(missing_ok=True)
        raise
    try:
        sync_directory(place.parent)
    except OSError as error:
        why = error.strerror
        raise Refusal(IO, f"{change.path}: it was replaced, but may not survive a power cut ({why}).") from None


def _write(waiting: Path, change: Change) -> None:
    descriptor = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, change.mode & 0o777)
    with os.fdopen(descriptor, "wb") as file:
        file.write(change.data)
        file.flush()
        if change.old is not None:
            _take_over(descriptor, change.old)
        sync(descriptor)


def _take_over(descriptor: int, old: os.stat_result) -> None:
    """The owner, where we may, and the mode; in this order, for a change of owner clears bits of the mode."""
    mode = stat.S_IMODE(old.st_mode)
    if not _owned(descriptor, old.st_uid, old.st_gid):
        mode &= ~stat.S_ISUID
        if not _owned(descriptor, -1, old.st_gid):
            mode &= ~stat.S_ISGID
    os.fchmod(descriptor, mode)


def _owned(descriptor: int, user: int, group: int) -> bool:
    """Give a file away, which only root may do, or to another group, which takes being in it."""
    try:
        os.fchown(descriptor, user, group)
    except PermissionError:
        return False
    return True


def _changed(place: Path, old: os.stat_result) -> bool:
    now = place.stat()
    return (now.st_ino, now.st_size, now.st_mtime_ns) != (old.st_ino, old.st_size, old.st_mtime_ns)
