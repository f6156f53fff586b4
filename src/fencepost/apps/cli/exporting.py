"""`fencepost export` and `fencepost show --json`: a session in a form that others read.

    jsonl        the events (see `lines`)
    markdown     for people
    openai, anthropic
                 what those APIs take (see `transcript`)

`--redact` hides secrets in any of them, before the form is made, and says on standard error how many it hid. `--json`
gives one object for programs, with the export in it. Torn bytes at the end are never exported; they are no event.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.apps.cli import exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.lines import lines
from fencepost.apps.cli.looking import Desk, look, status_for
from fencepost.apps.cli.secrets import Secrets, counted
from fencepost.errors import ConfigError, UsageError
from fencepost.journal.inspect import Reading, SessionState, fold_stored, state_of


class Export(msgspec.Struct, frozen=True):
    """What `--json` gives.

    Attributes:
        content: a list of records for `jsonl`, a text for `markdown`, else what the API takes.
        redacted: whether secrets were looked for.
        hidden: how often each kind of secret was hidden.
    """

    session: str
    state: SessionState
    problem: str | None
    format: str
    redacted: bool
    hidden: dict[str, int]
    content: Any


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    return look(
        arguments,
        lambda desk: export(desk, arguments.id, arguments.format, redact=arguments.redact, as_record=arguments.json),
    )


async def export(
    desk: Desk, text: str | None, form: str = "jsonl", *, redact: bool = False, as_record: bool = False
) -> int:
    """Print the session that `text` means; returns the exit status.

    Raises:
        SessionNotFoundError, UsageError: none, or several, are meant.
        ConfigError: a pattern of the configuration is none.
    """
    secrets = secrets_of(desk) if redact else None
    reading = await _read(desk, text, secrets)
    state, problem = state_of(reading)
    refused = None
    if form in _FORMS:
        content, refused = _FORMS[form](reading, desk)
    elif form == "markdown":
        from fencepost.apps.cli.markdown import markdown

        content = "\n\n".join(markdown(reading)) + "\n"
    else:
        content = map(msgspec.Raw, lines(reading))
    hidden = dict(sorted(secrets.hidden.items())) if secrets else {}
    if as_record:
        whole = list(content) if form == "jsonl" else content
        _write(msgspec.json.encode(Export(reading.stored.session, state, problem, form, redact, hidden, whole)))
    else:
        _print(form, content)
    return _told(reading, hidden if redact else None, refused)


def secrets_of(desk: Desk) -> Secrets:
    """What is looked for in this directory.

    Raises:
        ConfigError: a pattern of the configuration is none.
    """
    try:
        return Secrets(desk.config.config.redact.patterns)
    except UsageError as error:
        raise ConfigError(f"{desk.config.path}: {error}") from None


async def _read(desk: Desk, text: str | None, secrets: Secrets | None) -> Reading:
    if secrets is None:
        return await desk.read(text)
    from fencepost.apps.cli.redacting import redacted

    stored = await desk.store.read(await find(desk.store, text, desk.cwd))
    return fold_stored(redacted(stored, secrets), desk.vocabulary)


def _openai(reading: Reading, desk: Desk) -> tuple[Any, str | None]:
    from fencepost.apps.cli import transcript
    from fencepost.testing.pairing import pairing_problem

    made: dict[str, Any] = transcript.openai(transcript.request_of(reading.stored, desk.vocabulary))
    return made, pairing_problem(made["messages"])


def _anthropic(reading: Reading, desk: Desk) -> tuple[Any, str | None]:
    from fencepost.apps.cli import transcript
    from fencepost.testing.pairing_anthropic import anthropic_problem

    made: dict[str, Any] = transcript.anthropic(transcript.request_of(reading.stored, desk.vocabulary))
    return made, anthropic_problem(made["messages"])


_FORMS: dict[str, Callable[[Reading, Desk], tuple[Any, str | None]]] = {"openai": _openai, "anthropic": _anthropic}


def _print(form: str, content: Any) -> None:
    if form == "jsonl":
        for line in content:
            _write(bytes(line))
    elif form == "markdown":
        sys.stdout.buffer.write(content.encode(errors="replace"))
    else:
        _write(msgspec.json.encode(content))


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")


def _told(reading: Reading, hidden: dict[str, int] | None, refused: str | None) -> int:
    """Say on standard error what the export does not; returns the exit status."""
    state, problem = state_of(reading)
    if hidden is not None:
        kinds = f": {counted(hidden.items())}" if hidden else ""
        sys.stderr.write(f"fencepost: {sum(hidden.values())} secrets hidden{kinds}\n")
    if reading.stored.tail_bytes:
        sys.stderr.write(f"fencepost: {reading.stored.tail_bytes} torn bytes at the end are not exported\n")
    status = status_for(state)
    if status:
        sys.stderr.write(f"fencepost: session {reading.stored.session} is {state}: {problem}\n")
    if refused is not None:
        sys.stderr.write(f"fencepost: a strict endpoint would refuse this: {refused}\n")
    return status or (exits.OTHERWISE if refused is not None else exits.DONE)
