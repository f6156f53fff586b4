"""What a command line may run, looked at with suspicion: for rules that refuse.

A compound line is taken apart into the simple commands that may run in it: between `;`, `&`, `|` and line ends, in
subshells, substitutions and double quotes. What runs other commands (`sudo`, `xargs`, `bash -c` …) makes each of its
words a possible command, and each of its quoted texts a line of its own. A line that is not understood to its end is
looked at word by word as well.

Rules:
    1. It errs towards finding: better one harmless line refused than one that was meant let through.
    2. It never runs away: nesting is bounded, and the time is linear in the length.

What this is not: a sandbox. A command can be spelled in endlessly many ways that no reading of its text finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from fencepost.plugins.command_line import KEYWORDS, CommandPattern

_LAUNCHERS = (
    "sudo doas su env nohup setsid nice ionice chrt taskset stdbuf timeout time command builtin exec eval source . "
    "xargs parallel find watch script ssh bash sh dash zsh ksh fish busybox chroot unshare trap flock strace"
)
_RUNNERS = frozenset(_LAUNCHERS.split())
"""Programs whose arguments are, or hold, other commands."""

_PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>#]+")
_REDIRECTION = re.compile(r"<<<|<<-?|[<>]&-|<>|>>|>\||[<>]&?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_QUOTED = re.compile(r'[^"`$\\]+|\$')
_BETWEEN = re.compile(r"[\s;&|()<>`'\"{}$\\]+")
_DEEP = 40
"""Substitutions inside each other that are followed."""
_LINES = 4
"""Lines inside words of lines that are followed."""


class Command(msgspec.Struct, frozen=True):
    """A simple command that may run.

    Attributes:
        words: without quotes, redirections and leading assignments.
        anywhere: whether the command may begin at any of the words.
    """

    words: tuple[str, ...]
    anywhere: bool = False


def commands_in(line: str) -> tuple[Command, ...]:
    """Every simple command that may run in a line."""
    return tuple(command for command in _scan(line, _LINES) if command.words)


def may_run(pattern: CommandPattern, commands: Iterable[Command]) -> bool:
    """Whether one of the commands is what a pattern names.

    More words than the pattern has make no difference, wherever they stand: `git push` is also in `git -C x push -f`.
    """
    return any(_is_in(pattern, command) for command in commands)


def _is_in(pattern: CommandPattern, command: Command) -> bool:
    if not pattern.words:
        return bool(command.words)
    first, *others = pattern.words
    starts = range(len(command.words)) if command.anywhere else range(min(1, len(command.words)))
    start = next((at for at in starts if _names(first, command.words[at])), None)
    if start is None:
        return False
    rest = iter(command.words[start + 1 :])
    return all(any(other.fullmatch(word) for word in rest) for other in others)


def _names(pattern: re.Pattern[str], word: str) -> bool:
    """Whether a word names the program; `/usr/bin/git` is `git`."""
    return bool(pattern.fullmatch(word) or pattern.fullmatch(word.rpartition("/")[2]))


def _scan(line: str, lines: int) -> list[Command]:
    reading = _Reading(line, lines)
    reading.commands(None)
    if not reading.understood:
        reading.found.append(_loose(line))
    return reading.found


def _loose(line: str) -> Command:
    return Command(tuple(word for word in _BETWEEN.split(line) if word), anywhere=True)


def _in_front(words: Sequence[str], at: int) -> bool:
    """Whether a word still stands in front of the command: grammar, an assignment, or an option of `time`."""
    word = words[at]
    return word in KEYWORDS or bool(_ASSIGNMENT.match(word)) or (word.startswith("-") and "time" in words[:at])


class _Words:
    """The words of the simple command that is being read."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.word: str | None = None
        self.target = False
        """Whether the next word is where a redirection goes."""

    def add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def end(self) -> None:
        if self.word is not None and not self.target:
            self.done.append(self.word)
        self.target = self.target and self.word is None
        self.word = None

    def redirect(self, sign: str) -> None:
        if self.word is not None and self.word.isdigit():
            self.word = None
        self.end()
        self.target = not sign.endswith("&-") and sign != "<<<"  # that is text, and a shell would run it


class _Reading:
    """One line, read once from left to right."""

    def __init__(self, text: str, lines: int) -> None:
        self.found: list[Command] = []
        self.understood = True
        self._text = text
        self._at = 0
        self._lines = lines
        self._depth = 0

    def commands(self, end: str | None) -> None:
        """Read commands up to `end`, or to the end of the text."""
        if self._depth > _DEEP:
            self.understood, self._at = False, len(self._text)
            return
        self._depth += 1
        words = _Words()
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == end:
                break
            words = self._one(sign, words, end)
        else:
            self.understood = self.understood and end is None
        self._at += 1
        self._depth -= 1
        self._emit(words)

    def _one(self, sign: str, words: _Words, end: str | None) -> _Words:
        """Take in what stands at the present place; returns the words of the command that then is being read."""
        if sign == "&" and self._text.startswith("&>", self._at):
            self._at += 1
            self._redirection(words)
        elif sign in "\n;&|()":
            self._emit(words)
            self._at += 1
            if sign == "(":
                self.commands(")")
            return _Words()
        elif sign.isspace():
            words.end()
            self._at += 1
        elif sign in "<>":
            self._redirection(words)
        elif sign == "#" and words.word is None:
            self._comment(end)
        else:
            self._word(sign, words)
        return words

    def _word(self, sign: str, words: _Words) -> None:
        plain = _PLAIN.match(self._text, self._at)
        if plain is not None:
            words.add(plain[0])
            self._at = plain.end()
        elif sign in "$`":
            self._substitution(words)
        elif sign == "'":
            self._single(words)
        elif sign == '"':
            self._double(words)
        elif sign == "\\":
            self._escaped(words)
        else:
            words.add(sign)
            self._at += 1

    def _redirection(self, words: _Words) -> None:
        if self._text.startswith(("<(", ">("), self._at):
            words.add("")
            self._at += 2
            self.commands(")")
            return
        sign = _REDIRECTION.match(self._text, self._at)
        assert sign is not None
        self.understood = self.understood and sign[0] not in {"<<", "<<-"}  # what follows is text, and has own quotes
        words.redirect(sign[0])
        self._at = sign.end()

    def _comment(self, end: str | None) -> None:
        ends = [self._text.find(sign, self._at) for sign in ("\n", "`" if end == "`" else "\n")]
        self._at = min((at for at in ends if at >= 0), default=len(self._text))

    def _substitution(self, words: _Words) -> None:
        words.add("")
        if self._text[self._at] == "`":
            self._at += 1
            self.commands("`")
        elif self._text.startswith("$(", self._at):
            self._at += 2
            self.commands(")")
        elif self._text.startswith("$'", self._at):
            self._ansi(words)
        elif self._text.startswith('$"', self._at):
            self._at += 1
        else:
            words.add("$")
            self._at += 1

    def _ansi(self, words: _Words) -> None:
        match = _ANSI.match(self._text, self._at)
        self.understood = False  # what its escapes stand for is not worked out
        words.add(match[1] if match else "$")
        self._at = match.end() if match else self._at + 1

    def _single(self, words: _Words) -> None:
        closing = self._text.find("'", self._at + 1)
        if closing < 0:
            self.understood, closing = False, len(self._text)
        words.add(self._text[self._at + 1 : closing])
        self._at = closing + 1

    def _double(self, words: _Words) -> None:
        self._at += 1
        words.add("")
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == '"':
                self._at += 1
                return
            if sign == "`" or self._text.startswith("$(", self._at):
                self._substitution(words)
            elif sign == "\\":
                self._escaped(words, kept='$`"\\\n')
            else:
                text = _QUOTED.match(self._text, self._at)
                assert text is not None
                words.add(text[0])
                self._at = text.end()
        self.understood = False

    def _escaped(self, words: _Words, kept: str | None = None) -> None:
        """A backslash and what it makes plain; in double quotes only of `kept`. A line that is continued goes on."""
        sign = self._text[self._at + 1 : self._at + 2]
        if sign == "`":
            self.understood = False  # a substitution inside a substitution, as old shells spell it
        if sign != "\n":
            words.add(sign if kept is None or sign in kept else f"\\{sign}")
        self._at += 2

    def _emit(self, words: _Words) -> None:
        words.end()
        done = words.done
        start = next((at for at in range(len(done)) if not _in_front(done, at)), None)
        if start is None:
            return
        rest = done[start:]
        runs = any(word.rpartition("/")[2] in _RUNNERS for word in rest)
        self.found.append(Command(tuple(rest), anywhere=runs or not KEYWORDS.isdisjoint(rest)))
        if runs:
            self._lines_in(rest)

    def _lines_in(self, words: Sequence[str]) -> None:
        for word in words:
            if _BETWEEN.search(word):
                self.found.extend(_scan(word, self._lines - 1) if self._lines else [_loose(word)])
