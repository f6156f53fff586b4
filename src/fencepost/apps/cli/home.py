"""The tools of a stored session: those that the configuration of its own directory composes, where that can be had.

Repair and settlement need neither a model nor the directory. Where it is gone, or its configuration cannot be composed
any more, they make do with the configuration here, and say so: a tool that is missing settles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fencepost.apps.cli import chosen
from fencepost.core.events import Header
from fencepost.errors import CompositionError, ConfigError, UsageError
from fencepost.runtime.config import Config, load

T = TypeVar("T")


def composed_for(header: Header | None, make: Callable[[Config], T], say: Callable[[str], None]) -> T:
    """What `make` gives for the configuration of a session's directory, or for the one here.

    Args:
        header: of the session; None where it cannot be read.
        make: composes.
        say: told in a sentence if it is the one here, and why.

    Raises:
        ConfigError, CompositionError: the one here does not do either.
    """
    if header is None:
        return make(load(chosen.directory(None)).config)
    home = Path(header.cwd)
    try:
        if home.is_dir():
            return make(load(home).config)
        why = f"{home} is not there any more"
    except (ConfigError, CompositionError) as error:
        why = str(error)
    say(f"session {header.session}: {why}; its calls are settled with the tools that are configured here")
    return make(load(chosen.directory(None)).config)


def required_home(header: Header | None) -> Path:
    """The directory that a session works in; the one here where nothing can be read of that.

    Raises:
        UsageError: it is gone.
    """
    if header is None:
        return chosen.directory(None)  # resuming will say what is wrong with the session
    home = Path(header.cwd)
    if not home.is_dir():
        raise UsageError(
            f"session {header.session} works in {home}, which is not there any more",
            next_act="Bring the directory back, or only repair the session: fencepost resume without TASK",
        )
    return home
