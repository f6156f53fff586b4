"""The console script: words to a command, a command's failure to one sentence and an exit status.

Rules:
    1. Nothing is imported before a command needs it: `--version` and `--help` answer at once.
    2. No traceback reaches a user. What fencepost foresaw says what, and what to do; what it did not foresee says so in
       one line, and FENCEPOST_DEBUG=1 shows the rest.
    3. Standard output that nobody reads any more ends the command quietly.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from fencepost.apps.cli import exits
from fencepost.errors import FencepostError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words behind `fencepost`; those of the process if left out.

    Returns:
        The exit status; see `exits`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _dispatch(words)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - the edge of the process: all that is left is to say it
        status = _report(error)
    _let_go_of_output()
    return status


def _dispatch(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        from fencepost import __version__

        print(f"fencepost {__version__}")
        return exits.DONE
    if words[:1] == ["demo"]:
        from fencepost.apps.demo.main import main as demo

        return demo(words[1:])
    from fencepost.apps.cli.parser import parse

    arguments = parse(words or _unsaid())
    module = importlib.import_module(f"fencepost.apps.cli.{arguments.module}")
    return int(module.main(arguments))


def _unsaid() -> list[str]:
    """The words of a command line without any: on a terminal the person at it is talked with."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return ["chat"] if all(stream is not None and stream.isatty() for stream in streams) else []


def _report(error: BaseException) -> int:
    """Say what ended the command; returns the exit status."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else exits.USAGE
    statuses = [_say(leaf) for leaf in exits.leaves(error)]
    if os.environ.get("FENCEPOST_DEBUG"):
        import traceback

        traceback.print_exception(error)
    return exits.worst(statuses)


def _say(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return exits.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return exits.NO_READER
    if isinstance(error, FencepostError):
        complain(error.explain())
        return exits.status_of(error)
    text = " ".join(str(error).split()) or "no message"
    complain(f"an internal fault, {type(error).__name__}: {text}. Set FENCEPOST_DEBUG=1 for the traceback")
    return exits.INTERNAL


def complain(sentence: str) -> None:
    """One line to standard error, whatever state that is in."""
    from fencepost.apps.cli.plain import plain

    try:
        sys.stderr.write(f"fencepost: error: {plain(sentence)}\n")
        sys.stderr.flush()
    except OSError:
        return  # nobody can be told; the exit status still says it


def _let_go_of_output() -> None:
    """Keep the interpreter, which flushes once more at its end, from complaining about a reader that has gone."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
