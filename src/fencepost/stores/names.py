"""How a session's id becomes one segment of a path.

Rules:
    1. One id, one segment, and no two ids share one, on a file system that folds case too.
    2. A segment is never empty, hidden, a step upwards, or a name that some system keeps for a device.
    3. Lower-case letters, digits, `-`, `_` and inner dots stand for themselves, anything else is `%XX` per byte of
       its UTF-8. A name that would become too long is cut and closed with `~` and a hash of the whole id; where the
       true id then stands is the store's business.
    4. What could not have been made by rule 3 is not ours: a listing steps over it.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_to_bytes

from fencepost.errors import UsageError

LONGEST = 180
"""Characters of a segment; file systems take 255 bytes."""

_KEPT = 140
_HASH = 32
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
_ITSELF = re.compile(rf"[a-z0-9_-](?:[a-z0-9_.-]{{0,{LONGEST - 2}}}[a-z0-9_-])?")
_SHORTENED = re.compile(rf".{{{_KEPT}}}~[0-9a-f]{{{_HASH}}}")


def segment(session: str) -> str:
    """The path segment of a session id.

    Raises:
        UsageError: the id is empty, or not text that UTF-8 can carry.
    """
    if not session:
        raise UsageError("a session id may not be empty")
    try:
        raw = session.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the session id {session!r} is not valid Unicode") from None
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if name.startswith(".") or _DEVICE.match(name):
        name = f"%{raw[0]:02X}{name[1:]}"
    if name.endswith("."):
        name = f"{name[:-1]}%2E"
    if len(name) > LONGEST:
        return f"{name[:_KEPT]}~{hashlib.sha256(raw).hexdigest()[:_HASH]}"
    return name


def session_of(name: str) -> str | None:
    """The session id that a segment stands for; None where it is shortened, or not ours."""
    if _ITSELF.fullmatch(name) and not _DEVICE.match(name):
        return name  # most names are of this kind, and a listing has thousands
    try:
        session = unquote_to_bytes(name).decode()
        return session if segment(session) == name else None
    except (UnicodeError, UsageError):
        return None


def is_shortened(name: str) -> bool:
    """Whether a segment has the form of a shortened id."""
    return _SHORTENED.fullmatch(name) is not None
