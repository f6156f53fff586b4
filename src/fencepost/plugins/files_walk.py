"""Walking a directory tree, globs, and searching text. Also a script: `search_files` runs it in a process of its own.

Why a process: a regular expression can take longer than the universe, and Python holds the interpreter lock all the
while, so that in a thread it would stop every session. A process can be killed.

    python -I -S files_walk.py ROOT SHOWN PATTERN GLOB MATCHES BYTES SECONDS

prints `path:line:text` on stdout and ends with one line of counts on stderr. Hence nothing but the standard library
here, and little of it.

Rules: symbolic links are named, never followed; the insides of version control are left out; shallow comes first.
"""

import os
import re
import sys
from collections.abc import Iterator

# pathlib and contextlib cost more than they give in a process that is started per search.
# ruff: noqa: PTH112, PTH115, PTH118, PTH123

HIDDEN = frozenset({".git", ".hg", ".svn"})
"""Directories that are named, but not entered."""
LARGEST = 8 << 20
"""Bytes of the largest file that is searched."""
SNIFFED = 8192
"""Bytes at the beginning that are looked at: with a NUL among them, it is no text."""
LINE_SHOWN = 300
"""Characters of a matching line that are shown."""


class Entry:
    """Something in the tree: its path below the root (with /), its kind, and where a link points."""

    __slots__ = ("is_dir", "is_file", "link", "path")

    def __init__(self, path: str, found: "os.DirEntry[str]") -> None:
        self.path = path
        self.link = _target(found) if found.is_symlink() else None
        self.is_dir = found.is_dir(follow_symlinks=False)
        self.is_file = found.is_file(follow_symlinks=False)


def _target(link: "os.DirEntry[str]") -> str:
    try:
        return os.readlink(link.path)
    except OSError:
        return "?"  # it went away while we looked


class Tree:
    """A directory tree. `unreadable` counts the directories that could not be read so far."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.unreadable = 0

    def entries(self, depth: int | None = None) -> Iterator[Entry]:
        """Everything below the root, level by level, sorted within each directory."""
        level, below = [""], 0
        while level and (depth is None or below < depth):
            deeper = []
            for directory in level:
                for entry in self._inside(directory):
                    yield entry
                    if entry.is_dir and entry.path.rpartition("/")[2] not in HIDDEN:
                        deeper.append(entry.path + "/")
            level, below = deeper, below + 1

    def _inside(self, directory: str) -> list[Entry]:
        try:
            with os.scandir(os.path.join(self.root, directory)) as found:
                return [Entry(directory + one.name, one) for one in sorted(found, key=lambda one: one.name)]
        except OSError:
            self.unreadable += 1
            return []


def glob_matcher(glob: str) -> "re.Pattern[str]":
    """A pattern to `fullmatch` paths with. Without a slash the glob is about names, at any depth.

    `*` and `?` stay within a name, `**` crosses directories, `[...]` is one of some characters.
    """
    if "/" not in glob:
        glob = "**/" + glob
    out, at = "", 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif glob.startswith("**", at):
            out, at = out + ".*", at + 2
        else:
            part, at = _glob_part(glob, at)
            out += part
    return re.compile(out, re.DOTALL)


def _glob_part(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "*":
        return "[^/]*", at + 1
    if glob[at] == "?":
        return "[^/]", at + 1
    end = glob.find("]", at + 2)
    if glob[at] == "[" and end > 0:
        inside = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
        negated = inside.startswith("!")
        return f"[{'^/' if negated else ''}{inside[negated:]}]", end + 1
    return re.escape(glob[at]), at + 1


# --- the script -------------------------------------------------------------------------------------------------


class Search:
    """One search: prints as it finds, until its bounds are reached."""

    def __init__(self, pattern: "re.Pattern[str]", matches: int, size: int) -> None:
        self._pattern = pattern
        self._matches = matches
        self._size = size
        self.binary = self.large = self.unreadable = 0

    @property
    def full(self) -> bool:
        return self._matches <= 0 or self._size <= 0

    def file(self, place: str, shown: str) -> None:
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                data = file.read(LARGEST + 1)
        except OSError:
            self.unreadable += 1
            return
        if b"\0" in data[:SNIFFED]:
            self.binary += 1
        elif len(data) > LARGEST:
            self.large += 1
        else:
            self._lines(data, shown.replace("\n", "\\n"))

    def _lines(self, data: bytes, shown: str) -> None:
        for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
            text = line.decode("utf-8", "replace").removesuffix("\r")
            found = self._pattern.search(text)
            if found is None:
                continue
            if self.full:
                self._matches = -1
                return
            out = f"{shown}:{number}:{around(text, found.start())}\n".encode("utf-8", "surrogateescape")
            sys.stdout.buffer.write(out)
            self._matches -= 1
            self._size -= len(out)

    @property
    def more(self) -> bool:
        """Whether there was a match beyond the bounds."""
        return self._matches < 0


def around(text: str, at: int) -> str:
    """`text`, or the part of it around a place, when it is long."""
    if len(text) <= LINE_SHOWN:
        return text
    start = max(0, min(at - LINE_SHOWN // 3, len(text) - LINE_SHOWN))
    end = start + LINE_SHOWN
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def main() -> int:
    """Search; 2 if the pattern is not one."""
    root, shown, pattern, glob = sys.argv[1:5]
    matches, size, seconds = map(int, sys.argv[5:8])
    try:
        import _signal  # type: ignore[import-not-found]

        _signal.alarm(seconds)  # whoever asked may have died meanwhile
    except ImportError:
        pass
    try:
        search = Search(re.compile(pattern), matches, size)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    wanted = glob_matcher(glob) if glob else None
    tree = Tree(root)
    if os.path.isdir(root):
        for entry in tree.entries():
            if entry.is_file and (wanted is None or wanted.fullmatch(entry.path)):
                search.file(f"{root}/{entry.path}", f"{shown}{entry.path}")
                if search.more:
                    break
    else:
        search.file(root, shown)
    sys.stdout.flush()
    counts = search.more, search.binary, search.large, search.unreadable + tree.unreadable
    sys.stderr.write(" ".join(str(int(count)) for count in counts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
