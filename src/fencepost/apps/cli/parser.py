"""The words of the command line. Each command names the module of this package that runs it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

ABOUT = "Run an agent whose session log tells the truth after a crash."

EPILOG = """\
models:
  anthropic:NAME, openai:NAME, deepseek:NAME   with a key, see below
  local:FILE.gguf                              on this machine, without a key
  script:FILE                                  answers from a file

environment:
  FENCEPOST_MODEL, FENCEPOST_STORE   in place of --model and --store
  ANTHROPIC_API_KEY, OPENAI_API_KEY, DEEPSEEK_API_KEY
  ANTHROPIC_BASE_URL, OPENAI_BASE_URL, DEEPSEEK_BASE_URL   compatible endpoints
  FENCEPOST_DEBUG=1                  show tracebacks

exit status:
  0 done · 1 the turn ended otherwise · 2 usage · 3 could not be saved
  4 held by another process · 5 damaged or unsupported
  130 interrupted (129 hung up, 143 told to end)

IDs may be shortened to a unique beginning.
"""

COMPLETION = (
    "Print a completion script. In ~/.bashrc: source <(fencepost completion bash). In ~/.zshrc, behind compinit: "
    "source <(fencepost completion zsh). For fish: fencepost completion fish > "
    "~/.config/fish/completions/fencepost.fish"
)
RECORDS = "JSON for programs"
MODEL = "anthropic:NAME, openai:NAME, deepseek:NAME, local:FILE or script:FILE"

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("begin", ("init", "demo")),
    ("work", ("run", "resume", "chat")),
    ("look", ("sessions", "show", "inspect", "export")),
    ("keep", ("fork", "copy", "compress", "delete", "restore", "purge")),
    ("serve", ("acp", "serve")),
    ("check", ("doctor", "config", "completion")),
)
"""The commands as `--help` lists them; one that is in no group stands at the end."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments; `module` is the module that runs the command.

    Raises:
        SystemExit: help was asked for (0), or the words are wrong (2).
    """
    parser, commands = build()
    if words and words[0] in commands.choices:
        # By itself a subparser takes all its words in one go, and would refuse a TASK behind a flag.
        chosen: argparse.ArgumentParser = commands.choices[words[0]]
        return chosen.parse_intermixed_args(list(words[1:]))
    return parser.parse_args(words)


def build() -> tuple[argparse.ArgumentParser, _Commands]:
    """The parser, and its commands by name."""
    parser = argparse.ArgumentParser(
        prog="fencepost",
        usage="fencepost COMMAND …  (fencepost COMMAND --help says more)",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(prog="fencepost", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    _live(commands)
    _faces(commands)
    _looking(commands)
    _keeping(commands)
    _setup(commands)
    parser.epilog = "\n".join((*_listed(abouts(commands)), EPILOG))
    return parser, commands


def abouts(commands: _Commands) -> dict[str, str]:
    """What each command does, in one line."""
    return {choice.dest: choice.help or "" for choice in commands._choices_actions}  # noqa: SLF001 - it has no public name


def _listed(about: dict[str, str]) -> Iterator[str]:
    grouped = {name for _, names in GROUPS for name in names}
    for title, names in (*GROUPS, ("more", tuple(name for name in about if name not in grouped))):
        here = [name for name in names if name in about]
        if here:
            yield f"{title}:"
            yield from (f"  {name:<12}{about[name]}" for name in here)
            yield ""


if TYPE_CHECKING:
    _Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name


def _command(commands: _Commands, name: str, module: str, about: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    parser.add_argument("--store", metavar="URL", help="jsonl:DIR or memory: (default: in your data directory)")
    parser.set_defaults(module=module, words_of=name)
    return parser


def _live(commands: _Commands) -> None:
    """The commands that own a session."""
    run = _command(commands, "run", "running", "start a session and give it a task")
    run.add_argument("task", metavar="TASK", help="what to do; - reads it from standard input")
    run.add_argument("--cwd", metavar="DIR", help="the session's working directory (default: this one)")
    run.add_argument("--session", metavar="ID", help="the new session's id (default: made from date and time)")
    resume = _command(commands, "resume", "resuming", "take a session up again: repair it, and wait or go on")
    resume.add_argument("id", metavar="ID", nargs="?", help="default: the last session of this directory")
    resume.add_argument("task", metavar="TASK", nargs="?", help="what to do next; without it nothing runs")
    resume.add_argument("--continue", dest="go_on", action="store_true", help="go on with what was interrupted first")
    resume.add_argument(
        "--takeover", action="store_true", help="take it from another process, where the store can (postgresql:)"
    )
    _settling(resume)
    for parser in (run, resume):
        parser.add_argument("--model", metavar="M", help=MODEL)
        parser.add_argument(
            "--approve",
            choices=("ask", "read", "all", "none"),
            help="which calls run: ask about all but reading ones (default on a terminal), only reading ones "
            "(default elsewhere), all, none",
        )
        parser.add_argument("--json", action="store_true", help="print events as JSON Lines, then the outcome")


def _faces(commands: _Commands) -> None:
    """The agent for a person at a terminal, and for other programs."""
    chat = _command(commands, "chat", "chatting", "talk with the agent in a terminal (also: fencepost)")
    chat.add_argument("id", metavar="ID", nargs="?", help="the session to take up; without it a new one")
    chat.add_argument("--model", metavar="M", help=MODEL)
    chat.add_argument("--approve", choices=("ask", "read", "all", "none"), help="which calls run (default: ask)")
    serve = _command(commands, "serve", "serving", "serve the agent to other programs: JSON-RPC over stdio or HTTP")
    how = serve.add_mutually_exclusive_group(required=True)
    how.add_argument("--stdio", action="store_true", help="to the program that started this one, a JSON object a line")
    how.add_argument("--http", metavar="HOST:PORT", help="over HTTP with server-sent events; a bearer token always")
    serve.add_argument("--token-file", metavar="FILE", help="where the token is, or is put (default: FENCEPOST_TOKEN)")
    serve.add_argument("--host-name", metavar="NAME", action="append", help="another name that clients may call it by")
    serve.add_argument("--model", metavar="M", help=MODEL)
    serve.add_argument("--approve", choices=("ask", "read", "all", "none"), help="which calls run (default: ask)")
    acp = _command(commands, "acp", "editor", "be the agent of an editor: Agent Client Protocol over stdio")
    acp.add_argument("--model", metavar="M", help=MODEL)
    acp.add_argument(
        "--approve", choices=("ask", "read", "all", "none"), help="which calls run, to begin with (default: ask)"
    )


def _settling(resume: argparse.ArgumentParser) -> None:
    resume.add_argument(
        "--running",
        choices=("leave", "wait", "end"),
        default="leave",
        help="calls that still run: leave them alone, their outcome stays unknown (default); wait until they are over; "
        "end them. Ctrl-C ends the waiting and changes nothing",
    )
    resume.add_argument(
        "--rerun",
        metavar="EFFECT",
        action="append",
        default=[],
        help="run again, under their old id, the calls whose outcome is unknown and whose tool declares just this: "
        "read, idempotent, or read,idempotent (neither means the other). Works without --continue too",
    )


def _looking(commands: _Commands) -> None:
    """The commands that only read."""
    sessions = _command(commands, "sessions", "listing", "list the sessions of a store")
    sessions.add_argument("--json", action="store_true", help=RECORDS)
    sessions.add_argument("--limit", metavar="N", type=int, help="rows at most (default: 50; with --json, all)")
    sessions.add_argument("--all", action="store_true", help="all rows")
    sessions.add_argument("--trash", action="store_true", help="list what was deleted and can be restored")
    for name, module, about in (
        ("show", "showing", "draw a session as a timeline"),
        ("inspect", "inspecting", "say of each call: completed, not started, or outcome unknown"),
        ("export", "exporting", "print a session as events, Markdown, or messages of a model API"),
    ):
        parser = _command(commands, name, module, about)
        parser.add_argument("id", metavar="ID", nargs="?", help="default: the last session of this directory")
        if name == "export":
            _export(parser)
        else:
            if name == "inspect":
                parser.add_argument(
                    "--settle", action="store_true", help="ask the tools, too, what really happened; changes nothing"
                )
            if name == "show":
                parser.add_argument("--turn", metavar="N", type=int, help="only this turn")
                parser.add_argument("--tail", metavar="N", type=int, help="only the last N rows")
            what = "the events, as export prints them" if name == "show" else RECORDS
            parser.add_argument("--json", action="store_true", help=what)


def _export(parser: argparse.ArgumentParser) -> None:
    forms = ("jsonl", "markdown", "openai", "anthropic")
    parser.add_argument("--format", choices=forms, default="jsonl", help="default: jsonl, the events")
    parser.add_argument("--redact", action="store_true", help="hide secrets, and say how many")
    parser.add_argument("--json", action="store_true", help="one JSON object, with the export in it")


def _keeping(commands: _Commands) -> None:
    """What can be done with sessions that nobody works on."""
    fork = _command(commands, "fork", "forking", "begin a new session as another one began; that one stays as it is")
    fork.add_argument("id", metavar="ID", help="the session to begin as")
    fork.add_argument("--at", metavar="SEQ|turn:N", help="the last event, or turn, to take over (default: all of it)")
    fork.add_argument("--to", metavar="NEWID", help="the new session's id (default: made from date and time)")
    copy = _command(commands, "copy", "copying", "copy a session into another store, the same to the byte")
    copy.add_argument("id", metavar="ID", help="the session to copy")
    copy.add_argument("--to", metavar="URL", required=True, help="the other store")
    delete = _command(commands, "delete", "keeping", "move a session into the trash")
    delete.add_argument("id", metavar="ID", help="the session to delete")
    restore = _command(commands, "restore", "keeping", "take a session out of the trash")
    restore.add_argument("id", metavar="ID", help="the session to restore; of several, the one that was deleted last")
    purge = _command(commands, "purge", "keeping", "destroy what is in the trash")
    purge.add_argument(
        "--older-than", metavar="DAYS", type=float, default=0.0, help="only what was deleted so long ago (default: 0)"
    )
    compress = _command(commands, "compress", "compressing", "store logs in fewer bytes; they are read as before")
    compress.add_argument("id", metavar="ID", nargs="?", help="the session to compress")
    compress.add_argument("--all-closed", action="store_true", help="every session that is clean and not in use")
    for parser in (fork, copy, delete, restore, purge, compress):
        parser.add_argument("--json", action="store_true", help=RECORDS)


def _setup(commands: _Commands) -> None:
    doctor = _command(commands, "doctor", "examining", "check sessions, and by killing a child of its own the medium")
    doctor.add_argument("id", metavar="ID", nargs="?", help="only this session, and all that can be said of it")
    doctor.add_argument("--repair", action="store_true", help="move the session's torn tail into a file beside it")
    doctor.add_argument(
        "--salvage", metavar="NEW", help="write what is intact of it into a new session; it stays as it is"
    )
    doctor.add_argument("--json", action="store_true", help=RECORDS)
    config = _command(commands, "config", "configuring", "print what is composed: model, store, plugins, hooks, tools")
    config.add_argument("--json", action="store_true", help=RECORDS)
    init = _command(commands, "init", "initialising", "write a commented fencepost.toml; check model, store and medium")
    init.add_argument("--model", metavar="M", help=f"{MODEL}; without it the file says how to choose one")
    init.add_argument("--force", action="store_true", help="replace the file that is there")
    init.add_argument("--json", action="store_true", help=RECORDS)
    completion = commands.add_parser(
        "completion", help="print what makes your shell complete these words", description=COMPLETION
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(module="completing", words_of="completion")
    commands.add_parser("demo", help="kill a real agent at ten points and check what its log says", add_help=False)
