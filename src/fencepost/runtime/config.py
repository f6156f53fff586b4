"""`fencepost.toml`: which plugins, which settings, which defaults.

    model = "openai:gpt-5"            # what --model and FENCEPOST_MODEL override
    store = "jsonl:./sessions"
    approve = "ask"
    purge_days = 30                   # `fencepost delete` destroys what was deleted longer ago; without it nothing is
    system = "You work carefully."
    plugins = ["checkpoint", "retry"] # replaces the default list; entry points of `fencepost.plugins` by name

    [settings]                        # sent with every model request
    temperature = 0.2

    [plugin.retry]                    # settings of one plugin
    attempts = 3

    [plugin.rules]                    # how they are written: `plugins.rules`; deny wins over allow, allow over asking
    deny = [{tool = "shell", command = "git push"}, {tool = "*", path = "secrets/**"}]
    allow = [{tool = "shell", command = "git status *"}]

    [plugin.budget]                   # of one turn; what is left out is not limited
    calls = 100
    seconds = 1800
    tokens = 500000

    [plugin.repeats]
    same = 5                          # times that the same call may have the same result in a row; 0: always

    [redact]                          # what `fencepost export --redact` hides beside what it knows
    patterns = ["ACME-[0-9]{6}"]      # regular expressions; of a group named `secret` only that group

Looked for in the working directory, then in the user's configuration directory. A key that is not known is an error
that names the file and the key.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from fencepost.core.events import Json
from fencepost.core.normalise import clean_json
from fencepost.errors import ConfigError, IllegalEventError

FILE = "fencepost.toml"


class Redact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is hidden in exports beside what is known to be secret: regular expressions."""

    patterns: list[str] = []


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a configuration file; what is left out has the default of the command line."""

    model: str | None = None
    store: str | None = None
    approve: str | None = None
    purge_days: Annotated[float, msgspec.Meta(ge=0)] | None = None
    system: str | None = None
    plugins: list[str] | None = None
    settings: dict[str, Json] = {}
    plugin: dict[str, dict[str, Json]] = {}
    redact: Redact = Redact()


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration and where it came from; `path` is None for the defaults."""

    config: Config
    path: Path | None


def load(cwd: Path, environ: Mapping[str, str] = os.environ) -> LoadedConfig:
    """The configuration that is in force in `cwd`.

    Raises:
        ConfigError: a file is there and cannot be read, parsed or understood.
    """
    for path in (cwd / FILE, config_home(environ) / FILE):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        return LoadedConfig(parse(text, path), path)
    return LoadedConfig(Config(), None)


def parse(text: bytes, path: Path) -> Config:
    """Parse one configuration file.

    Raises:
        ConfigError: with the file, and the line or the key.
    """
    try:
        config = msgspec.convert(tomllib.loads(text.decode()), Config)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
    _require_json(config.settings, "settings", path)
    for name, values in config.plugin.items():
        _require_json(values, f"plugin.{name}", path)
    return config


def _require_json(values: dict[str, Json], table: str, path: Path) -> None:
    """TOML has dates, times and numbers without end; settings go into the log, which is JSON."""
    replaced: list[str] = []
    try:
        clean_json(values, "", replaced)
    except IllegalEventError as error:
        raise ConfigError(f"{path}: [{table}] {error}") from None
    if replaced:
        raise ConfigError(f"{path}: [{table}] {replaced[0]} is a number that JSON cannot carry")


def config_home(environ: Mapping[str, str]) -> Path:
    """The directory of the user's own configuration."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "fencepost"


def data_home(environ: Mapping[str, str]) -> Path:
    """The directory where sessions are stored by default."""
    base = environ.get("XDG_DATA_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".local" / "share")
    return Path(base) / "fencepost"


def cache_home(environ: Mapping[str, str]) -> Path:
    """The directory of what can be made again."""
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "fencepost"


def default_store(environ: Mapping[str, str]) -> str:
    """The store that is used if nothing else is said."""
    return f"jsonl:{data_home(environ) / 'sessions'}"
