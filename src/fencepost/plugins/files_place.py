"""Where a path of the model leads, whether that is outside, and what is said when the file system says no.

Rules:
    1. A path counts from the session's working directory; `~` is the home directory.
    2. What counts is where a path leads, with every symbolic link followed. One that leads out of the working
       directory is asked about (`outside`), and it is that same place which is then read or written.
    3. What goes wrong is one sentence for the model with a stable code, never an exception out of the tool.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from fencepost.runtime.tools import ToolReply

P = ParamSpec("P")

NO_SUCH_FILE = "NO_SUCH_FILE"
IS_A_DIRECTORY = "IS_A_DIRECTORY"
NOT_A_DIRECTORY = "NOT_A_DIRECTORY"
NOT_A_FILE = "NOT_A_FILE"
PERMISSION = "PERMISSION"
BAD_PATH = "BAD_PATH"
NO_SPACE = "NO_SPACE"
READ_ONLY = "READ_ONLY"
IO = "IO"

_CAUSES: dict[int, tuple[str, str]] = {
    errno.ENOENT: (NO_SUCH_FILE, "there is no such file"),
    errno.EISDIR: (IS_A_DIRECTORY, "it is a directory"),
    errno.ENOTDIR: (NOT_A_DIRECTORY, "a part of that path is not a directory"),
    errno.EEXIST: (NOT_A_DIRECTORY, "a part of that path is not a directory"),
    errno.ENXIO: (NOT_A_FILE, "it is a device, pipe or socket, not a file"),
    errno.EACCES: (PERMISSION, "permission denied"),
    errno.EPERM: (PERMISSION, "the operation is not permitted"),
    errno.ENAMETOOLONG: (BAD_PATH, "the name is too long"),
    errno.ELOOP: (BAD_PATH, "its symbolic links go round in a circle"),
    errno.ENOSPC: (NO_SPACE, "no space is left on the device; nothing was changed"),
    errno.EDQUOT: (NO_SPACE, "the disk quota is used up; nothing was changed"),
    errno.EROFS: (READ_ONLY, "the file system is read-only"),
}


class Refusal(Exception):  # noqa: N818 - an answer on its way out, not a fault
    """Ends a file tool with an answer for the model."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reply = ToolReply(sentence, is_error=True, code=code)


def answering(function: Callable[P, ToolReply]) -> Callable[P, ToolReply]:
    """Make refusals, and what the operating system refuses, into replies."""

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> ToolReply:
        try:
            return function(*args, **kwargs)
        except Refusal as refusal:
            return refusal.reply
        except OSError as error:
            code, why = _CAUSES.get(error.errno or 0, (IO, error.strerror or str(error)))
            return ToolReply(f"{kwargs.get('path', error.filename)}: {why}.", is_error=True, code=code)

    return answer


def resolve(path: str, cwd: Path) -> Path:
    """The place that `path` leads to, absolute, without links. It need not exist.

    Raises:
        Refusal: no file can have this path.
    """
    if not path:
        raise Refusal(BAD_PATH, "The path is empty.")
    try:
        os.fsencode(path)
        if "\0" in path:
            raise Refusal(BAD_PATH, "The path holds a NUL character.")
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)  # noqa: PTH111 - pathlib raises where there is no home
        return Path(os.path.realpath(cwd / path))
    except UnicodeEncodeError:
        raise Refusal(BAD_PATH, "The path holds half of a surrogate pair.") from None


def outside(arguments: dict[str, Any], cwd: Path) -> str | None:
    """Why a person should be asked about this `path`: it leads out of the working directory. Else None."""
    path = str(arguments.get("path", "."))
    try:
        place = resolve(path, cwd)
    except Refusal:
        return None  # the tool refuses it by itself
    if place.is_relative_to(os.path.realpath(cwd)):
        return None
    led = "" if str(place) == path else f" leads to {place}, which"
    return f"{path}{led} is outside the working directory {cwd}"


def open_regular(place: Path, path: str) -> int:
    """A descriptor for reading a regular file; never one that blocks (a pipe without a writer, a terminal).

    Raises:
        Refusal: it is something else.
        OSError: it cannot be opened.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        require_regular(os.fstat(descriptor), path)
    except Refusal:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(found: os.stat_result, path: str) -> None:
    """Refuse what is not a regular file."""
    if stat.S_ISDIR(found.st_mode):
        raise Refusal(IS_A_DIRECTORY, f"{path}: it is a directory; list it with list_files.")
    if not stat.S_ISREG(found.st_mode):
        raise Refusal(NOT_A_FILE, f"{path}: it is a device, pipe or socket, not a file.")
