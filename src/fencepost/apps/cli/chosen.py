"""What was chosen: the flag, then the environment, then `fencepost.toml`, then the default; in that order, per word.

A URL or model of a configuration file whose path begins with `./` or `../` is meant from that file's directory, one
that is given on the command line from the process's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fencepost.core.codec import CORE, Vocabulary
from fencepost.errors import ConfigError, UsageError
from fencepost.plugins.approval import MODES, Mode
from fencepost.runtime.config import LoadedConfig, default_store

NO_MODEL = """\
no model is chosen: --model, FENCEPOST_MODEL or, in fencepost.toml (see fencepost init), `model` says which
  a key:     export ANTHROPIC_API_KEY=…; fencepost run --model anthropic:NAME …   (or openai:, deepseek:)
  a file:    pip install 'fencepost[local]'; fencepost run --model local:FILE.gguf …
  a script:  fencepost run --model script:FILE …   answers from a file, offline"""


class Approve(msgspec.Struct, frozen=True):
    """Which calls run, and whether that was said on the command line."""

    mode: Mode
    explicit: bool


def directory(text: str | None) -> Path:
    """The working directory that a flag names; the process's if there is none.

    Raises:
        UsageError: it is not a directory.
    """
    try:
        path = Path(text).expanduser().absolute() if text else Path.cwd()
    except FileNotFoundError:
        raise UsageError("the directory that this command was started in does not exist any more") from None
    if not path.is_dir():
        raise UsageError(f"the working directory {path} is not a directory")
    return path


def store_url(flag: str | None, loaded: LoadedConfig, environ: Mapping[str, str] = os.environ) -> str:
    """The store's URL."""
    return flag or environ.get("FENCEPOST_STORE") or anchored(loaded.config.store, loaded) or default_store(environ)


def model_spec(flag: str | None, loaded: LoadedConfig, environ: Mapping[str, str] = os.environ) -> str | None:
    """The model, or None where nobody chose one."""
    return flag or environ.get("FENCEPOST_MODEL") or anchored(loaded.config.model, loaded)


def required_model(flag: str | None, loaded: LoadedConfig, environ: Mapping[str, str] = os.environ) -> str:
    """The model.

    Raises:
        UsageError: nobody chose one; says how to.
    """
    spec = model_spec(flag, loaded, environ)
    if spec is None:
        raise UsageError(NO_MODEL)
    return spec


def anchored(value: str | None, loaded: LoadedConfig) -> str | None:
    """A value of the configuration file, its relative path meant from the file's directory."""
    if value is None or loaded.path is None:
        return value
    scheme, _, rest = value.partition(":")
    if rest.startswith(("./", "../")):
        return f"{scheme}:{loaded.path.parent / rest}"
    return value


def approve(arguments: argparse.Namespace, loaded: LoadedConfig) -> Approve:
    """Which calls run. `ask` is the default on a terminal and `read` elsewhere; a file's `ask` needs one too.

    Raises:
        ConfigError: the file names a mode that is none.
    """
    if arguments.approve is not None:
        return Approve(arguments.approve, explicit=True)
    configured = loaded.config.approve
    if configured is not None and configured not in MODES:
        raise ConfigError(f"{loaded.path}: approve = {configured!r} is not one of {', '.join(MODES)}")
    attended = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    wanted = configured or "ask"
    return Approve("read" if wanted == "ask" and not attended else wanted, explicit=False)


def vocabulary(loaded: LoadedConfig) -> Vocabulary:
    """The event types of the composed plugins, for commands that only read.

    A plugin that cannot be composed is reported, not fatal: reading works without it.
    """
    if loaded.config.plugins is None:
        return CORE  # what ships declares no event of its own
    from fencepost.apps.cli.ready import composition
    from fencepost.errors import FencepostError

    try:
        return Vocabulary(composition(loaded.config).registry.events)
    except FencepostError as error:
        sys.stderr.write(f"fencepost: {loaded.path}: {error}; its events are shown as unknown\n")
        return CORE
