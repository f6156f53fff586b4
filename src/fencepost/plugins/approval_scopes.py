"""For which later calls of a session a person's "yes" counts, and which of that a person is offered.

    scope       covers                                                                             `pattern`
    call        the same tool with the same arguments, as long as it would be asked about alike    -
    tool        the same tool, but nothing that its guard warns of                                 its name
    prefix      shell commands that are one simple command and begin with the same words           those words
    directory   the same file tool in a directory and below, links followed, wherever that is      its real path

Rules:
    1. Nothing is covered that the person could not see in the question. A line with `;`, `$(…)`, a redirection or
       anything else that is not plain words has no prefix (`command_line`); a path counts as the place it leads to.
    2. "Yes" is read back from the log: a record without a scope, from an earlier release, means `tool`.
    3. An answer whose scope does not cover the very call that was asked about counts once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fencepost.core import events as ev
from fencepost.core.calls import CallRecord
from fencepost.core.normalise import clean_json
from fencepost.errors import IllegalEventError
from fencepost.plugins.command_line import has_prefix, prefix_to_offer
from fencepost.plugins.files_place import Refusal, outside, resolve
from fencepost.runtime.answer import parse_arguments
from fencepost.runtime.subjects import Candidate

SHELL = "shell"
"""The tool that runs command lines."""

LONGEST = 200
"""Characters of a pattern that a person is offered at most: they have to be able to read it."""


class Verdict(msgspec.Struct, frozen=True):
    """What the person said.

    Attributes:
        allowed: whether the call may run.
        remember: whether a "yes" also counts for the calls that `scope` and `pattern` cover; see the module.
        by: who said it.
        reason: told to the model with a "no".
        scope: best taken from a `Choice`, together with `pattern`.
        pattern: see the module.
    """

    allowed: bool
    remember: bool = False
    by: str = "user"
    reason: str = ""
    scope: ev.Scope = "tool"
    pattern: str = ""


class Choice(msgspec.Struct, frozen=True):
    """One way to say "yes, always", for any face to offer.

    Attributes:
        scope: see the module.
        pattern: see the module.
        text: what it would cover, in words that follow "always allow".
    """

    scope: ev.Scope
    pattern: str
    text: str

    def yes(self, by: str = "user") -> Verdict:
        """The answer of a person who chose this."""
        return Verdict(allowed=True, remember=True, by=by, scope=self.scope, pattern=self.pattern)


def choices(call: Candidate, warning: str | None) -> tuple[Choice, ...]:
    """What a person who is asked about a call may answer beside "once" and "no", the narrowest first.

    Args:
        call: it.
        warning: what the tool's guard says about it.
    """
    return tuple(_choices(call, warning))


def _choices(call: Candidate, warning: str | None) -> Iterator[Choice]:
    name = call.tool.name
    yield Choice("call", "", f"exactly this call of {name}")
    words = prefix_to_offer(_command(call) or "")
    if words is not None and warning is None and len(prefix := shlex.join(words)) <= LONGEST:
        yield Choice("prefix", prefix, f"{name} commands that begin with: {prefix}")
    place = _place(call)
    if place is not None:
        directory = str(place if place.is_dir() else place.parent)
        if directory != "/" and len(directory) <= LONGEST:
            yield Choice("directory", directory, f"{name} in {directory} and below")
    if warning is None:
        but = "" if call.tool.guard is None else ", as long as nothing else speaks against it"
        yield Choice("tool", name, f"{name}, whatever it is asked to do{but}")


class _Remembered(msgspec.Struct, frozen=True):
    """A "yes" that counts for more than one call."""

    call_id: str
    scope: ev.Scope
    pattern: str
    question: str


class Remembering:
    """What was remembered in one session: a fold over its log, see `folded`."""

    def __init__(self) -> None:
        self._questions: dict[str, str] = {}
        self._kept: list[_Remembered] = []

    def take(self, entry: ev.Entry) -> None:
        """Take the next entry of the log in."""
        if type(entry) is ev.ApprovalAsked:
            self._questions[entry.call_id] = entry.question
        elif type(entry) is ev.ApprovalDecided:
            question = self._questions.pop(entry.call_id, "")
            if entry.allowed and entry.remember:
                self._kept.append(_Remembered(entry.call_id, entry.scope, entry.pattern, question))

    def covers(self, call: Candidate, warning: str | None, question: str) -> bool:
        """Whether a person said "always" to something that this call is part of.

        Args:
            call: it.
            warning: what the tool's guard says about it.
            question: how a person would be asked about it.
        """
        calls = call.journal.log.fold.calls
        return any(
            (earlier := calls.get(kept.call_id)) is not None and _covers(kept, earlier, call, warning, question)
            for kept in self._kept
        )


def _covers(kept: _Remembered, earlier: CallRecord, call: Candidate, warning: str | None, question: str) -> bool:
    if earlier.name != call.tool.name:
        return False
    if kept.scope == "call":
        return kept.question == question and _same(arguments_of(earlier), call.arguments)
    return fits(kept.scope, kept.pattern, call, warning)


def fits(scope: ev.Scope, pattern: str, call: Candidate, warning: str | None) -> bool:
    """Whether a call of the right tool is what `scope` and `pattern` cover.

    Args:
        scope: see the module; the scope `call` covers the call itself.
        pattern: see the module.
        call: it.
        warning: what the tool's guard says about it.
    """
    if scope == "prefix":
        return warning is None and has_prefix(_command(call) or "", pattern)
    if scope == "directory":
        place = _place(call)
        return place is not None and Path(pattern).is_absolute() and place.is_relative_to(os.path.normpath(pattern))
    return scope == "call" or warning is None


def _command(call: Candidate) -> str | None:
    """The command line that a call of the shell runs."""
    command = call.arguments.get("command") if call.tool.name == SHELL else None
    return command if isinstance(command, str) else None


def _place(call: Candidate) -> Path | None:
    """Where the path of a file tool leads; None for any other tool, whose paths may mean something else."""
    if call.tool.guard is not outside:
        return None
    try:
        return resolve(str(call.arguments.get("path", ".")), call.cwd)
    except Refusal:
        return None  # the tool refuses it by itself


def arguments_of(record: CallRecord) -> object:
    """The arguments of a call that the log has, as it has them."""
    return msgspec.to_builtins(record.admitted.arguments) if record.admitted else parse_arguments(record.arguments)


def _same(one: object, other: dict[str, Any]) -> bool:
    """Whether two calls have the same arguments; unlike `==`, which takes 1 for True."""
    try:
        return canonical(one) == canonical(other)
    except IllegalEventError:
        return False  # a value that no log can hold


def canonical(value: object) -> bytes:
    """One form for values that are the same in a log.

    Raises:
        IllegalEventError: no log can hold it.
    """
    return msgspec.json.encode(clean_json(value, "", []), order="deterministic")
