"""The sessions of one connection, and what the protocol can do with them.

Nothing is kept here but which sessions are open, and how: whatever happened in them is in their logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from acp import schema
from pydantic import BaseModel

from fencepost.apps.acp import listing, modes
from fencepost.apps.acp.bridge import Bridge, Place
from fencepost.apps.acp.history import live_history, stored_history
from fencepost.apps.acp.house import House, absolute, same_directory
from fencepost.apps.acp.peer import Peer
from fencepost.apps.acp.prompts import prompt_text
from fencepost.apps.acp.servers import sources
from fencepost.errors import SessionNotFoundError, UsageError
from fencepost.journal.inspect import Inspection, Reading, title_of
from fencepost.plugins.approval import Mode
from fencepost.runtime.runtime import fresh_session_id, system_identity
from fencepost.stores.base import upkeep_of

BEAT = 50
"""Updates of a history that are told in one go: a few milliseconds of work."""


class Sessions:
    """See the module.

    Args:
        house: what is in force where.
        peer: the client.
    """

    def __init__(self, house: House, peer: Peer) -> None:
        self._house = house
        self._peer = peer
        self._open: dict[str, Bridge] = {}

    def __repr__(self) -> str:
        return f"<Sessions {len(self._open)} open>"

    def _bridge(self, session: str, place: Place, servers: Sequence[Any] | None, start: int = 0) -> Bridge:
        compose = self._house.compose(place)
        return Bridge(session, place, self._peer, compose, sources(servers), start)

    def _of(self, session: str) -> Bridge:
        if session not in self._open:
            raise SessionNotFoundError(
                f"no session {session!r} is open on this connection", next_act="Load, resume or begin one"
            )
        return self._open[session]

    # --- opening ------------------------------------------------------------------------------------------------

    async def new(self, request: schema.NewSessionRequest) -> BaseModel:
        """`session/new`. The session is stored with its first prompt."""
        name = fresh_session_id(system_identity())
        bridge = self._bridge(name, self._house.place(request), request.mcp_servers)
        try:
            await bridge.create()
        except BaseException:
            await bridge.close()
            raise
        self._open[name] = bridge
        return schema.NewSessionResponse(
            session_id=name, modes=modes.modes(bridge.mode), config_options=modes.options(bridge.mode)
        )

    async def load(self, request: schema.LoadSessionRequest) -> BaseModel:
        """`session/load`: the whole history in front of the answer. Changes no byte."""
        place = self._house.place(request)
        bridge = await self._live(request.session_id, place)
        about = None
        if bridge is not None:
            await self._replay(bridge)
        else:
            bridge, reading, found = await self._stored(request.session_id, place, request.mcp_servers)
            await self._tell(bridge, stored_history(reading, found, place.cwd))
            about = _about(reading, found)
        return schema.LoadSessionResponse(
            modes=modes.modes(bridge.mode), config_options=modes.options(bridge.mode), field_meta=about
        )

    async def resume(self, request: schema.ResumeSessionRequest) -> BaseModel:
        """`session/resume`: nothing is replayed. Changes no byte."""
        place = self._house.place(request)
        bridge = await self._live(request.session_id, place)
        about = None
        if bridge is None:
            bridge, reading, found = await self._stored(request.session_id, place, request.mcp_servers)
            about = _about(reading, found)
        return schema.ResumeSessionResponse(
            modes=modes.modes(bridge.mode), config_options=modes.options(bridge.mode), field_meta=about
        )

    async def fork(self, request: schema.ForkSessionRequest) -> BaseModel:
        """`session/fork`: a new session that begins as another one did. That one is only read."""
        place = self._house.place(request)
        await self._house.look(place, request.session_id)
        name = await self._house.fork(place, request.session_id)
        reading, _ = await self._house.look(place, name)
        bridge = self._open[name] = self._bridge(name, place, request.mcp_servers, reading.fold.next_seq)
        return schema.ForkSessionResponse(
            session_id=name, modes=modes.modes(bridge.mode), config_options=modes.options(bridge.mode)
        )

    async def _live(self, session: str, place: Place) -> Bridge | None:
        """A session that is open here already, and was taken."""
        bridge = self._open.get(session)
        if bridge is None or not await bridge.taken():
            return None
        same_directory(bridge.place.cwd, place.cwd, session)
        return bridge

    async def _stored(
        self, session: str, place: Place, servers: Sequence[Any] | None
    ) -> tuple[Bridge, Reading, Inspection]:
        """A session that is only read until its first prompt."""
        reading, found = await self._house.look(place, session)
        before = self._open.pop(session, None)
        if before is not None:
            await before.close()
        bridge = self._open[session] = self._bridge(session, place, servers, reading.fold.next_seq)
        return bridge, reading, found

    async def _replay(self, bridge: Bridge) -> None:
        session, feed = bridge.session, bridge.feed
        assert session is not None
        assert feed is not None
        async with feed.lock:
            history = live_history(session.journal.log, feed.position, bridge.place.cwd, bridge.buffers.before)
            await self._tell(bridge, history)

    async def _tell(self, bridge: Bridge, history: Iterable[BaseModel]) -> None:
        """Tell a history; other sessions keep their beat."""
        for number, update in enumerate(history):
            await self._peer.update(bridge.id, update)
            if number % BEAT == 0:
                await asyncio.sleep(0)

    # --- a session that is open ---------------------------------------------------------------------------------

    async def prompt(self, request: schema.PromptRequest) -> BaseModel:
        """`session/prompt`: answered behind all that its turn has to tell."""
        bridge = self._of(request.session_id)
        answer = await bridge.prompt(prompt_text(request.prompt))
        if bridge.session is not None:
            log = bridge.session.journal.log
            stamp = listing.timestamp(log.fold.last_time)
            title = title_of(log.entries) or None
            update = schema.SessionInfoUpdate(session_update="session_info_update", title=title, updated_at=stamp)
            await self._peer.update(bridge.id, update)
        return answer

    def cancel(self, session: str) -> None:
        """`session/cancel`. One that is not open has nothing to cancel."""
        if session in self._open:
            self._open[session].cancel()

    async def set_mode(self, request: schema.SetSessionModeRequest) -> BaseModel:
        """`session/set_mode`; clients that know options only are told too."""
        bridge, mode = self._of(request.session_id), modes.mode_of(request.mode_id)
        bridge.set_mode(mode)
        options = schema.ConfigOptionUpdate(session_update="config_option_update", config_options=modes.options(mode))
        await self._peer.update(bridge.id, options)
        return schema.SetSessionModeResponse()

    async def set_option(self, request: schema.SetSessionConfigOptionSelectRequest) -> BaseModel:
        """`session/set_config_option`; clients that know modes only are told too."""
        bridge = self._of(request.session_id)
        if request.config_id != modes.OPTION:
            raise UsageError(f"there is no option {request.config_id!r}", next_act=f"There is: {modes.OPTION}")
        mode: Mode = modes.mode_of(str(request.value))
        bridge.set_mode(mode)
        update = schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
        await self._peer.update(bridge.id, update)
        return schema.SetSessionConfigOptionResponse(config_options=modes.options(mode))

    # --- lists and ends -----------------------------------------------------------------------------------------

    async def listed(self, request: schema.ListSessionsRequest) -> BaseModel:
        """`session/list`: of the directory that is asked for, or of all that are known here."""
        place = self._house.here() if request.cwd is None else self._house.at(absolute(request.cwd, "cwd"))
        stores = self._house.shelf.all() if request.cwd is None else [place.store]
        vocabulary = await self._house.vocabulary(place)
        return await listing.page(stores, vocabulary, request.cwd, request.cursor)

    async def close_one(self, request: schema.CloseSessionRequest) -> BaseModel:
        """`session/close`: as cancelling it, and then let go. One that is not open here is closed already."""
        bridge = self._open.pop(request.session_id, None)
        if bridge is None:
            self._house.here()  # so that its store is among those that are asked
            if await self._house.shelf.holding(request.session_id) is None:
                self._of(request.session_id)
            return schema.CloseSessionResponse()
        for failure in await bridge.close():
            raise failure
        return schema.CloseSessionResponse()

    async def delete(self, request: schema.DeleteSessionRequest) -> BaseModel:
        """`session/delete`: into the trash. One that is not there is deleted already, says the protocol."""
        bridge = self._open.pop(request.session_id, None)
        if bridge is not None:
            await bridge.close()
        self._house.here()
        store = await self._house.shelf.holding(request.session_id)
        if store is not None:
            await upkeep_of(store, "delete sessions").delete(request.session_id)
        return schema.DeleteSessionResponse()

    async def close(self) -> list[Exception]:
        """Close all that are open, side by side, each in order; returns what failed."""
        bridges, self._open = list(self._open.values()), {}
        found = await asyncio.gather(*(bridge.close() for bridge in bridges))
        return [error for errors in found for error in errors]


def _about(reading: Reading, found: Inspection) -> dict[str, Any]:
    """What a look at a stored session tells programs, under `_meta`."""
    owed = reading.fold.owed
    calls = [
        {"call_id": view.call_id, "name": view.name, "verdict": view.verdict, "code": view.code}
        for view in found.calls
        if view.call_id in owed
    ]
    pending = [item.input_id for item in found.pending_inputs]
    return {"fencepost": {"state": found.state, "problem": found.problem, "calls": calls, "pending": pending}}
