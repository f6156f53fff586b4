"""What is in force in each directory that a client works in: configuration, store, agent, and what is stored.

An agent is composed for each session, because tools, policies and the mode of approval are a session's own here. The
stores are shared by all sessions of the server.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from fencepost.apps.acp.bridge import Compose, Place
from fencepost.apps.acp.shelf import Shelf
from fencepost.apps.cli import chosen
from fencepost.apps.cli.ready import composition, ready_agent
from fencepost.core.codec import Vocabulary
from fencepost.errors import ConfigError, SessionNotFoundError, UsageError
from fencepost.journal import fork as forking
from fencepost.journal.inspect import Inspection, Reading, fold_stored
from fencepost.journal.session import off_loop
from fencepost.plugins.approval import MODES, Ask, Mode
from fencepost.plugins.mcp import Mcp
from fencepost.plugins.shipped import DEFAULT
from fencepost.runtime.config import LoadedConfig, load
from fencepost.runtime.plugin import Composition, Plugin
from fencepost.runtime.runtime import Runtime, fresh_session_id, system_identity
from fencepost.runtime.settle import preview
from fencepost.stores.base import StoredLog


class Wanted(msgspec.Struct, frozen=True):
    """What the command line says, where it says it.

    Attributes:
        store: a URL.
        model: `SCHEME:NAME`.
        approve: which calls pass without asking, to begin with.
    """

    store: str | None = None
    model: str | None = None
    approve: Mode | None = None


class Opening(Protocol):
    """What all requests that open a session have."""

    @property
    def cwd(self) -> str:
        """The session's working directory."""
        ...

    @property
    def additional_directories(self) -> list[str] | None:
        """More of them."""
        ...


class House:
    """See the module.

    Args:
        wanted: what the command line says.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.shelf = Shelf(wanted.store)

    def place(self, request: Opening) -> Place:
        """The directory that a request names.

        Raises:
            UsageError, ConfigError: it is none that can be worked in.
        """
        if request.additional_directories:
            raise UsageError("additional directories are not offered here", next_act="Open one session for each")
        return self.at(absolute(request.cwd, "the working directory"))

    def at(self, cwd: Path) -> Place:
        """What is in force in a directory.

        Raises:
            UsageError, ConfigError: its configuration is wrong.
        """
        loaded = load(cwd)
        return Place(cwd, loaded, self.shelf.of(loaded), self._mode(loaded))

    def here(self) -> Place:
        """What is in force where the server was started."""
        return self.at(chosen.directory(None))

    def _mode(self, loaded: LoadedConfig) -> Mode:
        wanted = self._wanted.approve or loaded.config.approve or "ask"
        for mode in MODES:
            if mode == wanted:
                return mode
        raise ConfigError(f"{loaded.path}: approve = {wanted!r} is not one of {', '.join(MODES)}")

    def compose(self, place: Place) -> Compose:
        """What makes the agent of a directory."""

        def agent(mode: Mode, ask: Ask, extra: Sequence[Plugin]) -> Runtime:
            model = chosen.required_model(self._wanted.model, place.loaded)
            plugins = [*extra, *_client_servers(place.loaded)]
            config, writes = place.loaded.config, self._wanted.approve == "all"
            return ready_agent(place.store, model, config, mode, ask, writes=writes, extra=plugins)

        return agent

    # --- looking ------------------------------------------------------------------------------------------------

    async def look(self, place: Place, session: str) -> tuple[Reading, Inspection]:
        """A session as it is stored, and as repair would settle it. Changes no byte.

        Raises:
            SessionNotFoundError: there is none.
            UsageError: it belongs to another directory.
        """
        stored = await _read(place, session)
        if stored.header is not None:
            same_directory(Path(stored.header.cwd), place.cwd, session)
        plugins = self._composition(place)
        try:
            vocabulary = Vocabulary(plugins.registry.events)
            reading = await off_loop(len(stored.entries), lambda: fold_stored(stored, vocabulary))
            return reading, await preview(reading, plugins.registry.tools, place.store.files(session))
        finally:
            await plugins.close()

    def _composition(self, place: Place) -> Composition:
        """The plugins alone, for looking: no model is needed."""
        return composition(place.loaded.config, extra=_client_servers(place.loaded))

    async def vocabulary(self, place: Place) -> Vocabulary:
        """The event types that are declared in a directory."""
        plugins = self._composition(place)
        try:
            return Vocabulary(plugins.registry.events)
        finally:
            await plugins.close()

    async def fork(self, place: Place, parent: str) -> str:
        """Make a new session out of all that another one has; gives its id.

        Raises:
            SessionNotFoundError, DamagedError, UnsupportedError: the parent is not there, or could not be continued.
        """
        identity = system_identity()
        name = fresh_session_id(identity)
        await forking.fork(place.store, parent, name, identity, await self.vocabulary(place))
        return name

    async def close(self) -> list[Exception]:
        """Close the stores; returns what failed."""
        return await self.shelf.close()


async def _read(place: Place, session: str) -> StoredLog:
    try:
        return await place.store.read(session)
    except SessionNotFoundError:
        where = f"{place.store.url}, the store of {place.cwd}"
        act = "List the sessions, or begin a new one"
        raise SessionNotFoundError(f"no session {session!r} in {where}", next_act=act) from None


def _client_servers(loaded: LoadedConfig) -> tuple[Plugin, ...]:
    """What records the MCP servers of clients, where the configuration does not compose it anyway."""
    names = DEFAULT if loaded.config.plugins is None else loaded.config.plugins
    return () if Mcp.name in names else (Mcp(),)


def same_directory(its: Path, asked: Path, session: str) -> None:
    """Refuse to open a session somewhere else than where it works.

    Raises:
        UsageError: the directories differ, links followed.
    """
    if os.path.realpath(its) != os.path.realpath(asked):
        raise UsageError(f"session {session} works in {its}, not in {asked}", next_act=f"Open it with cwd {its}")


def absolute(path: str, what: str) -> Path:
    """A path that a client gives.

    Raises:
        UsageError: it is not absolute.
    """
    given = Path(path)
    if not given.is_absolute():
        raise UsageError(f"{what} {path!r} is not absolute", next_act="Give it from the root")
    return given
