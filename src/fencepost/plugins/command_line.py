"""When a command line is one simple command, and which words it has.

Rules:
    1. A line is simple if every character of it means itself: words of plain characters, and quotes around text in
       which no shell expands anything. Everything else is not simple, and then nothing is said about it.
    2. `$` and backticks are never simple, not even in single quotes: some built-in commands expand what they are given.
    3. Neither is a control character, a line end among them, nor a line that begins with an assignment or with a word
       of the shell's grammar.

So a line that is simple does what its first word names with the other words, in any shell, and nothing beside it.
What this is not: a parser of shell. What else a compound line runs is looked for by `command_scan`.
"""

from __future__ import annotations

import re
import shlex

import msgspec

_GRAMMAR = "if then elif else fi for while until do done case esac in select function time coproc { } ! [[ ]]"
KEYWORDS = frozenset(_GRAMMAR.split())
"""Words of the shell's grammar."""

_CONTROL = r"\x00-\x1f\x7f-\x9f"
_PIECE = re.compile(
    r"(?P<blank>[ \t]+)"
    r"|(?P<bare>[\w@%+=:,./^~#-]+)"
    rf"|'(?P<single>[^'$`{_CONTROL}]*)'"
    rf'|"(?P<double>[^"$`\\{_CONTROL}]*)"'
)


def simple_command(line: str) -> tuple[str, ...] | None:
    """The words of a line that is one simple command; None if it is anything else."""
    words: list[str] = []
    inside = False
    at = 0
    while at < len(line):
        piece = _PIECE.match(line, at)
        if piece is None or piece.lastgroup is None:
            return None
        at = piece.end()
        if piece.lastgroup == "blank":
            inside = False
            continue
        text = piece[piece.lastgroup]
        if not inside:
            if piece.lastgroup == "bare" and text[0] in "~#":
                return None
            words.append("")
            inside = True
        words[-1] += text
    if not words or not words[0] or "=" in words[0] or words[0] in KEYWORDS:
        return None
    return tuple(words)


# --- what may be said of many lines -----------------------------------------------------------------------------

_LAUNCHERS = (
    "sudo doas su env nohup setsid nice ionice stdbuf timeout command builtin exec eval source . xargs parallel find "
    "watch script ssh bash sh dash zsh ksh fish busybox chroot trap flock strace perl ruby php lua awk gawk sed ed vi "
    "vim python python2 python3 node deno bun"
)
_RUN_OTHERS = frozenset(_LAUNCHERS.split())
"""Programs that do whatever their arguments say: what a prefix of theirs would cover cannot be foreseen."""

_TOOLS = (
    "git gh hg svn cargo rustup go npm pnpm yarn pip pip3 pipx uv poetry docker podman kubectl helm terraform "
    "systemctl journalctl apt apt-get dnf brew make just dotnet gradle mvn bundle gem conda"
)
_WITH_COMMANDS = frozenset(_TOOLS.split())
"""Programs whose second word says what they do."""
_DEEPER = frozenset(
    {("uv", "run"), ("uv", "pip"), ("npm", "run"), ("pnpm", "run"), ("yarn", "run"), ("poetry", "run"), ("go", "tool")}
    | {("docker", "compose"), ("git", "remote"), ("git", "stash"), ("gh", "pr"), ("gh", "issue"), ("bundle", "exec")}
)


def prefix_to_offer(line: str) -> tuple[str, ...] | None:
    """The first words of a command that a person may reasonably let pass always; None if there are none.

    `git status --short` has `git status`, `ls -l src` has `ls`, `sudo ls` has none.
    """
    words = simple_command(line)
    if words is None:
        return None
    if words[0] in {"python", "python3"} and words[1:2] == ("-m",):
        return words[:3] if len(words) > 2 else None
    if words[0].rpartition("/")[2] in _RUN_OTHERS:
        return None
    if words[0] not in _WITH_COMMANDS:
        return words[:1]
    depth = 3 if words[:2] in _DEEPER else 2
    prefix = words[:depth]
    return None if len(prefix) < depth or any(word.startswith("-") for word in prefix) else prefix


def has_prefix(line: str, prefix: str) -> bool:
    """Whether a line is one simple command that begins with the words of `prefix`."""
    try:
        wanted = tuple(shlex.split(prefix))
    except ValueError:
        return False
    words = simple_command(line)
    return bool(wanted) and words is not None and words[: len(wanted)] == wanted


# --- patterns ---------------------------------------------------------------------------------------------------


def wild(text: str, inside: str = ".") -> re.Pattern[str]:
    """A pattern in which only `*` is special: it stands for any number of `inside`."""
    return re.compile(f"{inside}*".join(re.escape(part) for part in text.split("*")), re.DOTALL)


class CommandPattern(msgspec.Struct, frozen=True):
    """A command as a rule names it: words, in which `*` stands for any characters of one word.

    Attributes:
        words: each compared with one word, whole.
        more: whether further words may follow; a `*` of its own at the end says so.
    """

    words: tuple[re.Pattern[str], ...]
    more: bool

    @classmethod
    def parse(cls, text: str) -> CommandPattern:
        """The pattern that `text` writes.

        Raises:
            ValueError: it is none; the message says why, as half a sentence.
        """
        special = next((sign for sign in text if sign in ";&|<>()$`\\{}[]?" or not sign.isprintable()), None)
        if special is not None:
            raise ValueError(f"a pattern names one simple command, in which only * is special; it has {special!r}")
        words = shlex.split(text)
        if not words:
            raise ValueError("it is empty")
        more = words[-1] == "*"
        return cls(tuple(wild(word) for word in (words[:-1] if more else words)), more)

    def is_exactly(self, line: str) -> bool:
        """Whether a line is one simple command with these words."""
        words = simple_command(line)
        if words is None or len(words) < len(self.words) or (len(words) > len(self.words) and not self.more):
            return False
        return all(pattern.fullmatch(word) for pattern, word in zip(self.words, words, strict=False))
