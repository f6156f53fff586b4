"""What can be typed behind a `/`. Each is one method of the application; this is the list, and how a line is read."""

from __future__ import annotations

import shlex
from typing import Final

import msgspec

from fencepost.errors import UsageError


class Command(msgspec.Struct, frozen=True):
    """One of them.

    Attributes:
        name: what is typed.
        arguments: what may stand behind it, as help shows it.
        about: what it does.
        idle: whether it has to wait for the end of a turn.
    """

    name: str
    arguments: str
    about: str
    idle: bool = False


COMMANDS: Final = (
    Command("sessions", "", "choose another session", idle=True),
    Command("resume", "ID", "take a session up", idle=True),
    Command("new", "", "begin a session in this directory", idle=True),
    Command("fork", "[TURN]", "go on in a copy of it, up to a turn", idle=True),
    Command("show", "", "all of this session, as it is on disk"),
    Command("export", "[FORMAT] [FILE]", "markdown, jsonl, openai or anthropic"),
    Command("compact", "", "sum older steps up for the model", idle=True),
    Command("model", "[M]", "go on with another model, like openai:NAME", idle=True),
    Command("approve", "[MODE]", "which calls run: ask, read, all, none"),
    Command("drop", "", "take the newest waiting prompt back"),
    Command("doctor", "", "check this session and its disk"),
    Command("help", "", "keys and commands"),
    Command("quit", "", "close in order, and leave"),
)

KEYS: Final = (
    ("Enter", "send; while a turn works: queue"),
    ("Ctrl+S", "steer: hand it to the turn that works"),
    ("Ctrl+J", "a new line"),
    ("Esc", "cancel the turn; in a dialog: back"),
    ("Tab, Shift+Tab", "to the cards and back; Enter folds one"),
    ("Ctrl+O", "unfold all cards, or fold them"),
    ("PgUp, PgDn", "scroll; Ctrl+End: to the end"),
    ("Ctrl+C", "cancel the turn; without one: empty the line"),
    ("Ctrl+Q, Ctrl+D", "close in order and leave; again: at once"),
)


def read(line: str) -> tuple[Command, list[str]]:
    """The command of a line, and its words.

    Raises:
        UsageError: it is none, or a quote is open.
    """
    try:
        words = shlex.split(line.removeprefix("/"))
    except ValueError as error:
        raise UsageError(f"{line}: {error}") from None
    name = words[0] if words else ""
    found = [one for one in COMMANDS if one.name == name] or [
        one for one in COMMANDS if name and one.name.startswith(name)
    ]
    if len(found) != 1:
        what = f"there is no command /{name}" if not found else f"/{name} may be {listed(found)}"
        raise UsageError(what, next_act="See /help; a prompt that begins with a slash needs a space before it")
    return found[0], words[1:]


def matching(text: str) -> list[Command]:
    """The commands that a line may become."""
    if not text.startswith("/") or "\n" in text:
        return []
    word, space, _ = text[1:].partition(" ")
    return [one for one in COMMANDS if one.name == word or (not space and one.name.startswith(word))]


def listed(found: list[Command]) -> str:
    """Their names."""
    return " ".join(f"/{one.name}" for one in found)


def help_text() -> str:
    """Keys and commands."""
    keys = [f"  {key:<16} {about}" for key, about in KEYS]
    commands = [f"  {f'/{one.name} {one.arguments}'.rstrip():<24} {one.about}" for one in COMMANDS]
    return "\n".join(["Keys", *keys, "", "Commands (a unique beginning is enough)", *commands])
