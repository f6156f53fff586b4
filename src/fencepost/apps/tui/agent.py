"""The agent behind the terminal: one runtime around the session that is looked at, and how it is replaced.

Rules:
    1. A session is composed from the configuration of its own directory, as `fencepost resume` does it.
    2. The next session is open before the one before it is closed; one that cannot be opened changes nothing. Only
       another model for the same session has to let go of it first.
    3. What the session says stands in its log; this keeps the session, and what the command line said.

What it refuses to be: it draws nothing, and runs nothing by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from fencepost.apps.cli import chosen
from fencepost.apps.cli.exits import leaves
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.home import required_home
from fencepost.apps.cli.ready import ready_agent
from fencepost.errors import ConfigError, UsageError
from fencepost.journal.inspect import CallView, SessionRow
from fencepost.plugins.approval import MODES, Approval, Ask, Mode
from fencepost.runtime.config import LoadedConfig, load
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.session import Session
from fencepost.runtime.settle import ALIVE, Running
from fencepost.runtime.subjects import Notice
from fencepost.stores.urls import open_store


class Wanted(msgspec.Struct, frozen=True):
    """What the command line says, where it says it."""

    store: str | None = None
    model: str | None = None
    approve: Mode | None = None


class Agent:
    """See the module. Made inside a running event loop.

    Args:
        wanted: what the command line says.
        here: the directory that new sessions work in.
        ask: asks a person about a call.
    """

    def __init__(self, wanted: Wanted, here: Path, ask: Ask) -> None:
        self._wanted = wanted
        self._here = here
        self._ask = ask
        self.url = chosen.store_url(wanted.store, load(here))
        self._runtime: Runtime | None = None
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The session that is looked at."""
        assert self._session is not None, "one is opened before anything is shown"
        return self._session

    @property
    def runtime(self) -> Runtime:
        """What it runs in."""
        assert self._runtime is not None, "one is opened before anything is shown"
        return self._runtime

    @property
    def opened(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    @property
    def mode(self) -> Mode | None:
        """Which calls pass without asking; None where the configuration composes no such policy."""
        found = [plugin.mode for plugin in self.runtime.composition.plugins if isinstance(plugin, Approval)]
        return found[0] if found else None

    # --- opening ------------------------------------------------------------------------------------------------

    async def new(self) -> Session:
        """Begin a session in this directory. Nothing is stored before its first prompt."""
        runtime = self._composed(self._here, self._wanted.model)
        return await self._take(runtime, lambda: runtime.create(cwd=self._here))

    async def still_running(self, text: str) -> tuple[str, tuple[CallView, ...]]:
        """The session that is meant, and those of its calls that live on though its agent is gone. Changes no byte.

        Raises:
            SessionNotFoundError, UsageError: none, or several, are meant.
        """
        store = open_store(self.url)
        try:
            name = await find(store, text, self._here)
            header = (await store.read(name)).header
        finally:
            await store.close()
        runtime = self._composed(required_home(header), None)
        try:
            found = await runtime.inspect(name, settle=True)
        finally:
            await runtime.close()
        return name, tuple(call for call in found.calls if call.evidence.startswith(ALIVE))

    async def resume(self, name: str, notify: Callable[[Notice], None], running: Running = "leave") -> Session:
        """Take a stored session up: settled, closed where it was interrupted, and waiting.

        Raises:
            SessionNotFoundError, HeldError, DamagedError, UnsupportedError, NotSavedError, UsageError: it cannot be.
        """
        store = open_store(self.url)
        try:
            home = required_home((await store.read(name)).header)
        finally:
            await store.close()
        runtime = self._composed(home, self._wanted.model)
        return await self._take(runtime, lambda: runtime.resume(name, running=running, notify=notify))

    async def another_model(self, spec: str, notify: Callable[[Notice], None]) -> Session:
        """Go on with this session and another model.

        Raises:
            UsageError, ConfigError, CompositionError: there is no such model; nothing was changed.
        """
        old, name = self.runtime, self.session.id
        if not old.store.durable:
            raise UsageError(f"{old.store.url} saves nothing, so this session would be lost", next_act="Save it first")
        runtime = self._composed(Path(self.session.journal.log.header.cwd), spec)
        self._wanted = msgspec.structs.replace(self._wanted, model=spec)
        stored = self.session.journal.watermark >= 0
        home = Path(self.session.journal.log.header.cwd)
        self._runtime = self._session = None
        failures = await _closed(old)
        if failures:
            await _closed(runtime)
            raise failures[0]
        if not stored:
            return await self._take(runtime, lambda: runtime.create(name, home))
        return await self._take(runtime, lambda: runtime.resume(name, notify=notify))

    async def fork(self, turn: int | None) -> str:
        """Make a new session out of this one's beginning; its id.

        Raises:
            StoreError, UsageError: see `Runtime.fork`.
        """
        await self.session.journal.flush()
        return (await self.runtime.fork(self.session.id, turn=turn)).session

    def approve(self, word: str) -> None:
        """Let other calls pass without asking, from the next one on.

        Raises:
            UsageError: there is no such mode, or no such policy.
        """
        mode = next((mode for mode in MODES if mode == word), None)
        if mode is None:
            raise UsageError(f"{word!r} is not one of {', '.join(MODES)}")
        plugins = [plugin for plugin in self.runtime.composition.plugins if isinstance(plugin, Approval)]
        if not plugins:
            raise UsageError("the configuration composes no approval plugin")
        for plugin in plugins:
            plugin.mode = mode
        self._wanted = msgspec.structs.replace(self._wanted, approve=mode)

    async def sessions(self, limit: int | None = None) -> list[SessionRow]:
        """The sessions of the store, the latest first."""
        return await self.runtime.sessions(limit)

    async def close(self) -> list[Exception]:
        """Close in order; what failed. Idempotent."""
        return [] if self._runtime is None else await _closed(self._runtime)

    # --- how ----------------------------------------------------------------------------------------------------

    async def _take(self, runtime: Runtime, opening: Callable[[], Awaitable[Session]]) -> Session:
        try:
            session = await opening()
        except BaseException:
            await _closed(runtime)
            raise
        before, self._runtime, self._session = self._runtime, runtime, session
        if before is not None and (failures := await _closed(before)):
            raise failures[0]
        return session

    def _composed(self, home: Path, model: str | None) -> Runtime:
        loaded = load(home)
        writes = self._wanted.approve == "all"
        spec = chosen.model_spec(model, loaded)
        return ready_agent(open_store(self.url), spec, loaded.config, self._mode(loaded), self._ask, writes=writes)

    def _mode(self, loaded: LoadedConfig) -> Mode:
        word = self._wanted.approve or loaded.config.approve or "ask"
        for mode in MODES:
            if mode == word:
                return mode
        raise ConfigError(f"{loaded.path}: approve = {word!r} is not one of {', '.join(MODES)}")


async def _closed(runtime: Runtime) -> list[Exception]:
    """Close a runtime in order; what failed."""
    try:
        await runtime.close()
    except Exception as error:  # noqa: BLE001 - whoever closes says what failed, and goes on closing
        return [leaf for leaf in leaves(error) if isinstance(leaf, Exception)]
    return []
