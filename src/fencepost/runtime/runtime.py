"""A runtime: a store, a composition and a model, and the sessions that are live in it.

Closing is ordered: sessions first (each settles its turn and flushes), then the composition (policies), the model,
and last the store. What fails on the way is kept and raised at the end; it does not stop the rest.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import Vocabulary
from fencepost.core.verdict import Evidence
from fencepost.errors import ClosedError, CompositionError, UsageError
from fencepost.journal import fork as forking
from fencepost.journal import inspect as looking
from fencepost.journal.catalogue import Catalogue
from fencepost.journal.session import Identity, Journal, Recovery
from fencepost.runtime.call import Site
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.config import cache_home
from fencepost.runtime.guarantees import Guarantees
from fencepost.runtime.loop import Body
from fencepost.runtime.models import Model
from fencepost.runtime.plugin import Composition, Plugin
from fencepost.runtime.rerun import rerun as rerun_calls
from fencepost.runtime.rerun import rerunnable
from fencepost.runtime.session import Session
from fencepost.runtime.settle import RUNNING, Running, Settling, preview, settle_calls, tidy, unheard
from fencepost.runtime.subjects import Notice
from fencepost.runtime.toolbox import Toolbox, ToolSource
from fencepost.runtime.toolrun import ToolRules
from fencepost.runtime.tools import CallContext, Tool
from fencepost.stores.base import Store

SYSTEM = (
    "You are an agent that works with the tools you are given, in the user's working directory. "
    "A tool result may say that the outcome of a call is unknown: then find out what really happened before you "
    "repeat anything that is not read-only or idempotent."
)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Settings(msgspec.Struct, frozen=True):
    """What a runtime is made with beside its parts.

    Attributes:
        system: the system prompt.
        rules: of the tool pipeline.
    """

    system: str = SYSTEM
    rules: ToolRules = ToolRules()


def system_identity() -> Identity:
    """The real clock, real chance, and this process's name."""
    return Identity(f"{os.getpid()}@{socket.gethostname()}", lambda: time.time_ns() // 1_000_000, fresh_id)


def fresh_id(prefix: str) -> str:
    """A new id: unique beyond the session, for a call id is handed to others as idempotency key (60 random bits)."""
    number = secrets.randbits(60)
    return prefix + "_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(0, 60, 5))


def fresh_session_id(identity: Identity) -> str:
    """An id that sorts by time and can be typed: date, time, and a random tail."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(identity.clock() / 1000))
    return f"{stamp}-{identity.fresh('s')[2:8]}"


class Runtime:
    """See the module. Made by `fencepost.open`, or by hand from its parts.

    Args:
        store: where logs are durable.
        model: the model, or None for a runtime that only looks at sessions.
        plugins: composed in an order that satisfies what they require.
        settings: see `Settings`.
        plugin_settings: a table for each plugin that is configured.
        identity: who we are, the clock, and fresh names.

    Raises:
        CompositionError, ConfigError: the plugins do not fit together.
    """

    def __init__(
        self,
        store: Store,
        model: Model | Callable[[Composition], Model] | None,
        plugins: Sequence[Plugin],
        settings: Settings | None = None,
        plugin_settings: Mapping[str, Mapping[str, ev.Json]] | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.store = store
        self.composition = Composition(list(plugins), plugin_settings or {})
        try:
            self.model = model if model is None or isinstance(model, Model) else model(self.composition)
        except BaseException:
            self.composition.undo()
            raise
        self.settings = settings or Settings()
        self.identity = identity or system_identity()
        self.vocabulary = Vocabulary(self.composition.registry.events)
        self._live: list[Session] = []
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        model = f"{self.model.provider}:{self.model.model}" if self.model else "no model"
        return f"<Runtime {self.store.url} | {model} | {len(self._live)} live>"

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools that the composition offers, by name."""
        return self.composition.registry.tools

    async def create(
        self, session: str | None = None, cwd: Path | str | None = None, *, sources: Sequence[ToolSource] = ()
    ) -> Session:
        """A new session. Nothing is stored before its first prompt.

        Args:
            session: its id; a fresh one if left out.
            cwd: its working directory; the process's if left out.
            sources: of tools for this session, beside those of the composition.

        Raises:
            SessionExistsError, HeldError: the id is taken.
            UsageError: `cwd` is not a directory.
            ClosedError: the runtime is closed.
        """
        self._refuse_closed()
        where = Path(cwd or Path.cwd()).absolute()
        if not where.is_dir():
            raise UsageError(f"the working directory {where} is not a directory")
        name = session if session is not None else fresh_session_id(self.identity)
        journal = await Journal.create(self.store, name, str(where), self.identity, self.vocabulary)
        return await self._open(journal, Recovery(), self._toolbox(sources))

    async def resume(
        self,
        session: str,
        *,
        takeover: bool = False,
        running: Running = "leave",
        rerun: AbstractSet[ev.Effect] = frozenset(),
        sources: Sequence[ToolSource] = (),
        notify: Callable[[Notice], None] = unheard,
    ) -> Session:
        """Take a stored session, settle and close what was interrupted, and wait: nothing runs by itself.

        Args:
            session: its id.
            takeover: take it from an owner whose process lives, too, where the store can refuse that one's later
                appends. What the other process does to the world meanwhile nobody here can stop: end it if you can.
            running: what is done about calls that still run: they are left alone (their outcome stays unknown), waited
                for, or ended.
            rerun: effects; calls that were declared so and whose outcome stays unknown run again, under their old
                `call_id`, each behind the gate. `write` among them is refused.
            sources: of tools for this session, beside those of the composition.
            notify: told what people should know before there is a session to listen to: what is waited for.

        Raises:
            SessionNotFoundError, HeldError, DamagedError, UnsupportedError: nothing was touched.
            UsageError: its owner lives, and this store cannot take it over; or `write` calls were to run again.
            NotSavedError: the closing records could not be made durable.
            ClosedError: the runtime is closed.
        """
        self._refuse_closed()
        if "write" in rerun:
            raise UsageError(
                "a write call is never run again by itself", next_act="Verify what happened, or ask for it"
            )
        if running not in RUNNING:
            raise UsageError(f"running={running!r} is not one of {', '.join(RUNNING)}")
        toolbox, files = self._toolbox(sources), self.store.files(session)
        may = rerunnable(rerun, toolbox.tools)
        how = Settling(toolbox.tools, files, running, may, notify)

        async def settle(journal: Journal, evidence: Evidence) -> None:
            if rerun:
                await toolbox.open(journal, files, notify)
            await settle_calls(journal, evidence, how)
            if rerun:
                await rerun_calls(self._rerun_site(journal, toolbox, notify), may)

        try:
            journal, recovery = await Journal.resume(
                self.store, session, self.identity, self.vocabulary, takeover=takeover, settle=settle
            )
            await _or_close(journal, tidy(journal, how))
        except BaseException:
            await toolbox.close()
            raise
        return await self._open(journal, recovery, toolbox)

    def _rerun_site(self, journal: Journal, toolbox: Toolbox, notify: Callable[[Notice], None]) -> Site:
        turn = journal.log.fold.turn
        assert turn is not None, "calls are owed, so a turn is open"
        return Site(
            journal=journal,
            hooks=self.composition.registry.hooks,
            tools=toolbox.tools,
            context=self._context(journal, notify),
            notify=notify,
            cancel=CancelSignal(),
            rules=self.settings.rules,
            turn=turn.number,
            step=turn.step,
        )

    def _toolbox(self, sources: Sequence[ToolSource]) -> Toolbox:
        return Toolbox(self.tools, (*self.composition.registry.sources, *sources))

    def _refuse_closed(self) -> None:
        if self._closing is not None:
            raise ClosedError("the runtime is closed")

    async def _open(self, journal: Journal, recovery: Recovery, toolbox: Toolbox) -> Session:
        if self._closing is not None:
            await toolbox.close()
            await journal.close()  # it was closed while the session was being opened
            self._refuse_closed()
        hooks = self.composition.registry.hooks
        guarantees = Guarantees(self.store.url, self.store.durable, hooks.gates(), hooks.policy(), self.store.ownership)
        files = self.store.files(journal.session)
        body = partial(self._body, toolbox.tools)
        session = Session(body, journal, guarantees, recovery, self._live.remove, toolbox, files)
        self._live.append(session)
        return session

    def _body(self, tools: Mapping[str, Tool], journal: Journal, notify: Callable[[Notice], None]) -> Body:
        if self.model is None:
            raise CompositionError("this runtime has no model", next_act="Give one, for instance model='openai:gpt-5'")
        return Body(
            journal,
            self.composition.registry.hooks,
            self.model,
            tools,
            self.settings.system,
            self.settings.rules,
            self._context(journal, notify),
            notify,
        )

    def _context(
        self, journal: Journal, notify: Callable[[Notice], None]
    ) -> Callable[[str, CancelSignal], CallContext]:
        header, tell = journal.log.header, _from_any_thread(notify)

        def context(call_id: str, cancel: CancelSignal) -> CallContext:
            return CallContext(
                call_id,
                header.session,
                Path(header.cwd),
                cancel,
                lambda text: tell(Notice("progress", text, call_id)),
                self.store.files(header.session),
            )

        return context

    async def fork(
        self, parent: str, to: str | None = None, *, at: int | None = None, turn: int | None = None
    ) -> forking.Forked:
        """Make a new session out of the beginning of another one, which is only read; `resume` opens it.

        Args:
            parent: the session to begin as.
            to: the new session's id; a fresh one if left out.
            at: the last event to take over, by its seq.
            turn: the last turn to take over; without `at` and `turn` all that is durable.

        Raises:
            SessionNotFoundError, DamagedError, UnsupportedError: the parent is not there, or could not be continued.
            SessionExistsError, HeldError: the new id is taken.
            UsageError: the parent has no such event or turn, or both were asked for.
            ClosedError: the runtime is closed.
        """
        self._refuse_closed()
        if at is not None and turn is not None:
            raise UsageError("a fork is cut at an event or at a turn, not both")
        name = to if to is not None else fresh_session_id(self.identity)
        cut = forking.Cut(at, turn)
        return await forking.fork(self.store, parent, name, self.identity, self.vocabulary, cut)

    async def sessions(self, limit: int | None = None) -> list[looking.SessionRow]:
        """The sessions of the store, the latest first, broken ones included.

        Of a large store a catalogue is kept in the user's cache directory; the store is only read.

        Args:
            limit: rows at most; all of them if left out.
        """
        return await Catalogue(self.store, self.vocabulary, cache_home(os.environ)).rows(limit)

    async def inspect(self, session: str, *, settle: bool = False) -> looking.Inspection:
        """Look at one session; changes no byte.

        Args:
            settle: ask the tools about calls whose outcome is unknown, as `resume` would.

        Raises:
            SessionNotFoundError: there is none.
        """
        if not settle:
            return await looking.inspect(self.store, session, self.vocabulary)
        reading = looking.fold_stored(await self.store.read(session), self.vocabulary)
        return await preview(reading, self.tools, self.store.files(session))

    async def close(self) -> None:
        """Close in order. Idempotent; a second call waits for the first.

        Raises:
            NotSavedError: a session's last events could not be made durable.
            ExceptionGroup: several things failed.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close runtime")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        outcomes = await asyncio.gather(*(session.close() for session in self._live), return_exceptions=True)
        failures = [error for error in outcomes if isinstance(error, Exception)]
        failures += await self.composition.close()
        for part in (self.model, self.store):
            if part is None:
                continue
            try:
                await part.close()
            except Exception as error:  # noqa: BLE001 - what one part fails at must not keep the next one open
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup("closing the runtime met several failures", failures)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def _or_close(journal: Journal, work: Awaitable[None]) -> None:
    """Do what belongs to opening a session; if it is interrupted the session is given up."""
    try:
        await work
    except BaseException:
        await journal.close()
        raise


def _from_any_thread(notify: Callable[[Notice], None]) -> Callable[[Notice], None]:
    """`notify` for bodies that run in a thread too: listeners are always called on the event loop's."""
    loop, home = asyncio.get_running_loop(), threading.get_ident()

    def tell(notice: Notice) -> None:
        if threading.get_ident() == home:
            notify(notice)
        else:
            loop.call_soon_threadsafe(notify, notice)

    return tell
