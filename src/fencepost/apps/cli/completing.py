"""`fencepost completion bash|zsh|fish`: a script that completes the words of the command line, made from its parser.

The script is complete in itself: pressing a key runs nothing of fencepost. So it knows commands, options and their
choices, and leaves ids of sessions, which change, to their listing. It is as old as the fencepost that printed it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.apps.cli import exits
from fencepost.apps.cli.parser import abouts, build

PATHS = frozenset({"DIR", "FILE"})
"""Metavars of options whose value is a path."""

SCHEMES = {
    "--model": ("anthropic:", "openai:", "deepseek:", "local:", "script:"),
    "--store": ("jsonl:", "sqlite:", "postgresql://", "memory:"),
    "--to": ("jsonl:", "sqlite:", "postgresql://"),
}
"""How values of some options begin. `--to` of `fork` is an id, and has no URL as its metavar."""


class Option(NamedTuple):
    """One option of a command: its names, what it does, and what its value can be."""

    names: tuple[str, ...]
    about: str
    takes: bool
    choices: tuple[str, ...] = ()
    path: bool = False


class Words(NamedTuple):
    """One command."""

    name: str
    about: str
    options: tuple[Option, ...]
    choices: tuple[str, ...]
    """What its first argument can be, where that is one of a few words."""


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    write = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]
    sys.stdout.write("\n".join(write(words())) + "\n")
    return exits.DONE


def words() -> list[Words]:
    """Every command that the parser knows."""
    _, commands = build()
    return [_words(name, about, commands.choices[name]) for name, about in abouts(commands).items()]


def _words(name: str, about: str, parser: argparse.ArgumentParser) -> Words:
    actions = parser._actions  # noqa: SLF001 - there is no public way to ask a parser for its words
    return Words(
        name,
        about,
        tuple(_option(action) for action in actions if action.option_strings),
        next((_choices(action) for action in actions if not action.option_strings), ()),
    )


def _option(action: argparse.Action) -> Option:
    takes = action.nargs != 0
    begins = SCHEMES.get(action.option_strings[-1], ()) if action.metavar in {"M", "URL"} else ()
    about = (action.help or "").partition(";")[0]
    names, path = tuple(action.option_strings), action.metavar in PATHS
    return Option(names, about, takes, _choices(action) or begins, path)


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))


def quoted(text: str) -> str:
    """One word of a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


# --- bash -------------------------------------------------------------------------------------------------------


def bash(known: list[Words]) -> Iterator[str]:
    """For bash. It breaks words at colons: behind `local:`, files are offered."""
    yield "# fencepost, for bash: source <(fencepost completion bash)"
    yield "_fencepost() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" given="" IFS=$\' \\t\\n\''
    yield "    COMPREPLY=()"
    yield '    case "$COMP_CWORD:${COMP_WORDS[1]}:$before" in'
    yield f"        1:*) given='{' '.join(one.name for one in known)} --help --version' ;;"
    for one in known:
        for option in one.options:
            names = "|".join(f"*:{one.name}:{name}" for name in option.names)
            if option.path:
                yield f'        {names}) COMPREPLY=($(compgen -f -- "$word")); return ;;'
            elif option.choices:
                yield f"        {names}) given='{' '.join(option.choices)}' ;;"
            elif option.takes:
                yield f"        {names}) return ;;"
        first = f"        2:{one.name}:*) given='{' '.join((*one.choices, *_names(one)))}' ;;"
        yield from [first] if one.choices else []
        yield f"        *:{one.name}:*) given='{' '.join(_names(one))}' ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$given" -- "$word"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _fencepost fencepost"


def _names(one: Words) -> list[str]:
    return [name for option in one.options for name in option.names if name.startswith("--")]


# --- zsh --------------------------------------------------------------------------------------------------------


def zsh(known: list[Words]) -> Iterator[str]:
    """For zsh, with what each word does beside it."""
    yield "#compdef fencepost"
    yield "_fencepost() {"
    yield "    local -a commands=("
    yield from ("        " + quoted(f"{one.name}:{one.about}") for one in known)
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield '    local name="$words[2]"'
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield '    case "$name" in'
    for one in known:
        yield f"        {one.name})"
        yield "            _arguments " + " ".join(_zsh_arguments(one)) + " ;;"
    yield "    esac"
    yield "}"
    yield "compdef _fencepost fencepost"


def _zsh_arguments(one: Words) -> Iterator[str]:
    for option in one.options:
        value = f":value:{_zsh_values(option)}" if option.takes else ""
        about = re.sub(r"([\[\]:\\])", r"\\\1", option.about)
        yield from (quoted(f"{name}[{about}]{value}") for name in option.names)
    yield quoted(f"1:word:({' '.join(one.choices)})") if one.choices else "'*:word:_files'"


def _zsh_values(option: Option) -> str:
    if option.path:
        return "_files"
    return f"({' '.join(choice.replace(':', chr(92) + ':') for choice in option.choices)})" if option.choices else " "


# --- fish -------------------------------------------------------------------------------------------------------


def fish(known: list[Words]) -> Iterator[str]:
    """For fish."""
    yield "# fencepost, for fish"
    first = "complete -c fencepost -n __fish_use_subcommand"
    yield f"{first} -l help -d 'list the commands'"
    yield f"{first} -l version -d 'print the version'"
    for one in known:
        yield f"{first} -f -a {one.name} -d {_fish_quoted(one.about)}"
        when = f"complete -c fencepost -n '__fish_seen_subcommand_from {one.name}'"
        if one.choices:
            yield f"{when} -f -a '{' '.join(one.choices)}'"
        for option in one.options:
            flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = _fish_value(option) if option.takes else ""
            yield f"{when} {flags}{value} -d {_fish_quoted(option.about)}"


def _fish_quoted(text: str) -> str:
    """One word of fish, whose single quotes know the backslash."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_value(option: Option) -> str:
    if option.path:
        return " -r -F"
    return f" -x -a '{' '.join(option.choices)}'" if option.choices else " -x"
