"""What `write_file` and `edit_file` leave behind before they change anything, and what it proves after a crash.

The receipt of a call is one file in `receipts` of the session's directory: which file, what it was, what it will be,
and under which name the new content waits until it is renamed over it. It is durable before that name is made. Its own
name says how far the call came: `CALL_ID.file` at first, `CALL_ID.file.put` from just before the renaming.

What is found after a crash, the first row that fits:

    the file holds what was to be written                     completed
    the new content still waits under its name                did not run: it was not renamed
    the renaming had not been announced                       did not run
    the file is the one that was there before, untouched      did not run: what is renamed over is gone
    there was no file, is none, and no name was made there    did not run
    anything else, also the old content in another file       unknown: somebody wrote, and may have written over it
    no receipt, where receipts are kept                       did not run
    no receipt, and this is perhaps not that place            unknown

Rules:
    1. Having the same bytes as before proves nothing: they may have been put back. The same inode with the same time
       of change does.
    2. The announcement is not synced: it outlives a kill, and counts for nothing once the machine was started again,
       nor where these are perhaps not the receipts themselves but what they once were (`UnsettledCall.vouched`).
    3. Of a call that was run again, only "completed" is certain: what its first run did, its receipt cannot say.
    4. `settle` changes nothing. It syncs what it found before it calls it completed: the log is going to say so, and
       must not outlive it.
    5. `tidy` removes the waiting content, and a receipt that was not finished: names that were chosen at random, and
       written down before they were used. Nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from pathlib import Path

import msgspec

from fencepost.plugins.files_disk import make_directories, sync, sync_directory, write_over
from fencepost.plugins.files_place import Refusal, resolve
from fencepost.runtime.settlement import Completed, DidNotRun, Settlement, Unknown, UnsettledCall
from fencepost.runtime.whereabouts import RECEIPTS, unseen
from fencepost.stores.names import segment

NO_RECEIPT = "NO_RECEIPT"

HASHED = 64 << 20
"""Bytes of the largest file that is hashed to say what it holds."""

PLANNED = ".file"
ANNOUNCED = ".file.put"
UNFINISHED = ".file.new"

_WAITING = re.compile(r"\.[0-9a-f]{16}\.fencepost")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Content(msgspec.Struct, frozen=True):
    """What a file holds. `sha256` is empty where it was too large, or could not be read."""

    size: int
    sha256: str


class Found(msgspec.Struct, frozen=True):
    """A file as it was found.

    Attributes:
        content: what it held.
        inode: its number.
        changed: when it was changed last, in any way, in epoch nanoseconds.
    """

    content: Content
    inode: int
    changed: int


class Receipt(msgspec.Struct, frozen=True):
    """What a call was about to do.

    Attributes:
        place: the file, absolute, without symbolic links.
        before: what was there; None: nothing.
        after: what it will hold.
        mode: of the new file.
        waiting: where the new content waits, in the deepest directory that was there.
        directory: that directory as it was, so that it can be told whether a name was made in it; its content is empty.
        said: what the call answers when it is done.
        boot: names the time for which the machine has been up; empty where the system gives it no name.
        again: there was a receipt of the same call already.
    """

    place: str
    before: Found | None
    after: Content
    mode: int
    waiting: str
    directory: Found
    said: str
    boot: str = ""
    again: bool = False


NOTHING = Content(0, "")


def content_of(data: bytes) -> Content:
    """Size and hash of bytes."""
    return Content(len(data), hashlib.sha256(data).hexdigest())


def found_at(place: Path, status: os.stat_result | None = None) -> Found:
    """A regular file as it is now, with its hash where that can be had.

    Args:
        place: the file.
        status: as it was when it was looked at before; content that has changed since is not hashed.

    Raises:
        OSError: it is not there, or cannot be looked at.
    """
    status = status or place.stat()
    digest = ""
    with contextlib.suppress(PermissionError, FileNotFoundError):
        if status.st_size <= HASHED:
            digest = _hashed(place, status)
    return Found(Content(status.st_size, digest), status.st_ino, status.st_ctime_ns)


def _hashed(place: Path, status: os.stat_result) -> str:
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        now = os.fstat(file.fileno())
    same = (now.st_ino, now.st_size, now.st_ctime_ns) == (status.st_ino, status.st_size, status.st_ctime_ns)
    return digest if same else ""


def directory_at(place: Path) -> Found:
    """A directory as it is now: both its times of change move with each name in it."""
    status = place.stat()
    return Found(NOTHING, status.st_ino, status.st_ctime_ns)


def waiting_in(directory: Path) -> Path:
    """A name under which new content can wait there, that nobody else has."""
    return directory / f".{secrets.token_hex(8)}.fencepost"


# --- leaving it -------------------------------------------------------------------------------------------------


def leave(files: Path, call_id: str, receipt: Receipt, path: str) -> None:
    """Make a receipt durable. The content that an earlier run of the same call left waiting is removed.

    Args:
        files: the session's directory.
        call_id: the call.
        receipt: what is to be kept.
        path: the file in the model's words.

    Raises:
        Refusal: it could not be made durable, so nothing may be changed.
    """
    names = _Names(files, call_id)
    try:
        _make_shelf(names.shelf)
        earlier = names.read()
        if earlier is not None:
            _remove_waiting(earlier)
        receipt = msgspec.structs.replace(receipt, boot=_boot(), again=earlier is not None)
        write_over(names.unfinished, _encoded(receipt), 0o600)
        names.unfinished.replace(names.planned)
        sync_directory(names.shelf)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Refusal(
            NO_RECEIPT, f"{path}: nothing was changed, for the receipt of the call could not be saved ({why})."
        ) from None


def announce(files: Path, call_id: str) -> None:
    """Say that the new content is put in its place next (rule 2)."""
    names = _Names(files, call_id)
    names.planned.replace(names.announced)


class _Names:
    """The names that the receipt of one call has."""

    def __init__(self, files: Path, call_id: str) -> None:
        name = segment(call_id)
        self.shelf = files / RECEIPTS
        self.unfinished = self.shelf / f"{name}{UNFINISHED}"
        self.planned = self.shelf / f"{name}{PLANNED}"
        self.announced = self.shelf / f"{name}{ANNOUNCED}"

    def read(self) -> Receipt | None:
        """The receipt; None if there is none.

        Raises:
            OSError: it cannot be read.
            ValueError: it is not one.
        """
        for place in (self.planned, self.announced):
            with contextlib.suppress(FileNotFoundError):
                return msgspec.convert(json.loads(place.read_bytes()), Receipt)
        return None


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _make_shelf(shelf: Path) -> None:
    """The directory of the receipts. Who was killed while making it has left it empty, and its names not durable."""
    make_directories(shelf, 0o700)
    with os.scandir(shelf) as entries:
        used = next(entries, None) is not None
    if not used:
        for directory in (shelf.parent, shelf.parent.parent):
            sync_directory(directory)


def _encoded(receipt: Receipt) -> bytes:
    # The names of files are bytes; what of them is no UTF-8 is half a surrogate pair here, which `json` can carry.
    return json.dumps(msgspec.to_builtins(receipt)).encode() + b"\n"


# --- what it proves ---------------------------------------------------------------------------------------------


def settle(call: UnsettledCall) -> Settlement:
    """What became of a call of `write_file` or `edit_file`; see the module's table."""
    names = _Names(call.files, call.call_id)
    try:
        receipt = names.read()
    except (OSError, ValueError) as error:
        return Unknown(f"its receipt cannot be read ({error})")
    if receipt is None:
        return _without_receipt(call)
    place = Path(receipt.place)
    try:
        status = _status(place)
        if status is not None and not stat.S_ISREG(status.st_mode):
            return _settled(call, receipt, None, "what is there now is no regular file")
        now = None if status is None else found_at(place, status)
        if now is not None and now.content == receipt.after:
            _make_durable(place, Path(receipt.waiting).parent)
            return Completed(receipt.said, f"{place} holds {_shown(now.content)}, as intended{_led(call, place)}")
    except OSError as error:
        return Unknown(f"{place} cannot be looked at ({error.strerror or error})")
    return _settled(call, receipt, now, "")


def _settled(call: UnsettledCall, receipt: Receipt, now: Found | None, odd: str) -> Settlement:
    """What is known where the file does not hold what was to be written."""
    state = odd or ("there is no file now" if now is None else f"it holds {_shown(now.content)} now")
    was = "there was none" if receipt.before is None else f"it held {_shown(receipt.before.content)}"
    told = f"{receipt.place}: {was} before the call, {_shown(receipt.after)} were to be written, {state}"
    try:
        proof = _proof(call, receipt, now, odd)
    except OSError as error:
        return Unknown(f"{told} ({error.strerror or error})")
    if not proof:
        return Unknown(f"{told}; something wrote to it meanwhile")
    if receipt.again:
        return Unknown(f"{told}; the call was run again, which came to nothing, and the first run may have written it")
    return DidNotRun(f"{told}, and {proof}")


def _proof(call: UnsettledCall, receipt: Receipt, now: Found | None, odd: str) -> str:
    """What proves that the new content was not put in its place; empty if nothing does."""
    if _status(Path(receipt.waiting)) is not None:
        return "the new content had not been put in its place"
    planned = _Names(call.files, call.call_id).planned
    if call.vouched and receipt.boot and receipt.boot == _boot() and _status(planned) is not None:
        return "it was not going to be put in its place yet"
    if odd:
        return ""
    if receipt.before is not None:
        same = now is not None and (now.inode, now.changed) == (receipt.before.inode, receipt.before.changed)
        return "that file was not touched since" if same else ""
    if now is None and directory_at(Path(receipt.waiting).parent) == receipt.directory:
        return "no file was made there since"
    return ""


def _without_receipt(call: UnsettledCall) -> Settlement:
    """A body leaves a receipt before it changes anything; but is this where it would be?"""
    why = unseen(call.owner, call.let_go)
    if why:
        return Unknown(why)
    if not call.vouched:
        return Unknown(f"no receipt of it is in {call.files / RECEIPTS}, which perhaps has not all that ever were")
    return DidNotRun("it left no receipt, and it does so before it changes anything")


def _status(place: Path) -> os.stat_result | None:
    try:
        return place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _make_durable(place: Path, last: Path) -> None:
    """Content and names: the call may have been killed between putting the file in its place and syncing that."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
    for directory in place.parents:
        sync_directory(directory)
        if directory == last:
            return


def _shown(content: Content) -> str:
    digest = f" (sha256 {content.sha256[:16]})" if content.sha256 else ""
    return f"{content.size} bytes{digest}"


def _led(call: UnsettledCall, place: Path) -> str:
    """Where the path of the call leads now, if that is another file."""
    path = str(call.arguments.get("path", ""))
    with contextlib.suppress(Refusal):
        now = resolve(path, call.cwd)
        if now != place:
            return f"; {path} leads to {now} now"
    return ""


# --- afterwards -------------------------------------------------------------------------------------------------


def tidy(call: UnsettledCall) -> None:
    """Remove what a call left waiting (rule 4).

    Raises:
        OSError, ValueError: it cannot be removed, or the receipt cannot be read.
    """
    names = _Names(call.files, call.call_id)
    _remove(names.unfinished)
    receipt = names.read()
    if receipt is not None:
        _remove_waiting(receipt)


def _remove_waiting(receipt: Receipt) -> None:
    """Only a name as bodies make it: a session may have come from somebody else, with receipts that name anything."""
    waiting = Path(receipt.waiting)
    if _WAITING.fullmatch(waiting.name):
        _remove(waiting)


def _remove(place: Path) -> None:
    """Remove a file, durably, if it is there."""
    status = _status(place)
    if status is not None and stat.S_ISREG(status.st_mode):
        place.unlink()
        sync_directory(place.parent)
