"""What a fresh process makes of a copy: it looks, it is refused while another one owns the session, it resumes, resumes
again, and goes on. Everything is done with the real store on a real directory, and everything is kept for the laws.
"""

import asyncio
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import CORE, FORMAT, encode, expand
from fencepost.core.log import Log
from fencepost.core.projection import ModelRequest, request
from fencepost.errors import DamagedError, FencepostError, HeldError
from fencepost.journal.inspect import Inspection, inspect, rows
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.plugin import Plugin
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl import JsonlStore
from tests.crash.boundaries import Tree, restore, tree_of, without_lock
from tests.crash.scenario import SESSION, Agent
from tests.crash.world import NOTHING, Witness, World


class Judged(msgspec.Struct, kw_only=True):
    """What came of one copy.

    Attributes:
        stored, view: as read and inspected; None where there is no such session.
        events: those that are stored, runs expanded.
        changed: what was done without changing anything, and changed a file all the same.
        refused: why the session could not be resumed, or None.
        found: the verdicts that `resume` reported, by call id; empty where no turn was open.
        repaired: all events after the repair.
        after: the inspection after the repair.
        by_resume: what the world saw of the two resumes.
        going_on: what the world saw of going on.
        requests: what the log calls for after the repair (if it has a header), and what was sent while going on.
        outcome: how going on ended.
        finished: all events at the end.
    """

    stored: StoredLog | None = None
    events: list[ev.Event] = []
    view: Inspection | None = None
    changed: list[str] = []
    refused: FencepostError | None = None
    found: dict[str, str] = {}
    repaired: list[ev.Event] = []
    after: Inspection | None = None
    by_resume: Witness = NOTHING
    going_on: Witness = NOTHING
    requests: list[ModelRequest] = []
    outcome: TurnResult | None = None
    finished: list[ev.Event] = []

    def verdicts(self) -> dict[str, str]:
        """By call id."""
        return {call.call_id: call.verdict for call in self.view.calls} if self.view else {}


AT_ONCE = 12
"""Copies that are judged side by side: being refused takes a moment, and so does a sync."""


def judge(copies: Sequence[Tree], place: Path, *, policy: Plugin | None = None, filler: str = "") -> list[Judged]:
    """What a fresh process makes of each of the copies, in their order. The same bytes are judged once.

    Args:
        place: a directory to work in.
        policy, filler: of the agent that resumes and goes on.
    """
    keys = [_digest(copy) for copy in copies]
    different = dict(zip(keys, copies, strict=True))
    found = asyncio.run(_judge_all(different, place, policy, filler))
    return [found[key] for key in keys]


async def _judge_all(copies: dict[bytes, Tree], place: Path, policy: Plugin | None, filler: str) -> dict[bytes, Judged]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(key: bytes, copy: Tree) -> tuple[bytes, Judged]:
        async with turn:
            root = place / key.hex()
            restore(copy, root)
            judged = await _Judging(root, policy, filler).run()
            shutil.rmtree(root)
            return key, judged

    return dict(await asyncio.gather(*(one(key, copy) for key, copy in copies.items())))


def _digest(copy: Tree) -> bytes:
    summary = hashlib.sha256()
    for name, data in sorted(without_lock(copy).items()):
        summary.update(f"{name}\0{len(data)}\0".encode() + data)
    return summary.digest()


class _Judging:
    def __init__(self, root: Path, policy: Plugin | None, filler: str) -> None:
        self._root = root
        self._policy = policy
        self._filler = filler
        self._out = Judged(changed=[])

    def _agent(self, life: str, world: World) -> Agent:
        return Agent(JsonlStore(self._root), world, life=life, policy=self._policy, filler=self._filler)

    async def run(self) -> Judged:
        await self._unchanged("looking", self._look)
        if self._out.stored is None:
            await self._begin_anew()
            return self._out
        await self._unchanged("a failed resume", self._be_refused)
        await self._resume()
        if self._out.refused is None:
            await self._unchanged("a second resume", self._resume_again)
            await self._go_on()
        return self._out

    async def _unchanged(self, what: str, act) -> None:
        before = without_lock(tree_of(self._root))
        await act()
        after = without_lock(tree_of(self._root))
        differing = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        self._out.changed.extend(f"{what} changed {name}" for name in differing)

    async def _look(self) -> None:
        store = JsonlStore(self._root)
        if SESSION in await store.sessions():
            self._out.stored = await store.read(SESSION)
            self._out.events = events_of(self._out.stored)
            self._out.view = await inspect(store, SESSION)
            assert self._out.view == await inspect(store, SESSION), "looking twice gave two answers"
            assert [row.state for row in await rows(store)] == [self._out.view.state]
        await store.close()

    async def _begin_anew(self) -> None:
        """A session that never was can be made: what its maker left behind is not in the way."""
        store = JsonlStore(self._root)
        handle = await store.create(ev.Header(SESSION, 0, "/", FORMAT))
        await handle.append([ev.SessionOwner(0, 0, "anew", 1, False)], 0)
        await store.close()

    async def _be_refused(self) -> None:
        """Somebody else holds it: no resume, and no verdict on what is open (law 8)."""
        owner = JsonlStore(self._root)
        handle = await owner.own(SESSION)
        async with self._agent("refused", World()).runtime as runtime:
            try:
                await runtime.resume(SESSION)
            except HeldError:
                pass
            else:
                raise AssertionError("two owners")
            beside = await runtime.inspect(SESSION)
        assert self._out.view is not None
        if self._out.view.state in {"clean", "interrupted"}:
            assert beside.state == "running"
            open_calls = {call.call_id for call in beside.calls if call.verdict == "running"}
            assert open_calls == _without_result(self._out.events), "a verdict on a living session"
        await handle.release()
        await owner.close()

    async def _resume(self) -> None:
        world = World()
        async with self._agent("second", world).runtime as runtime:
            try:
                session = await runtime.resume(SESSION)
            except DamagedError as error:
                self._out.refused = error
                return
            self._out.found = {item.call.call_id: item.verdict for item in session.recovery.calls}
            self._out.repaired = list(session.journal.log.events())
        self._out.by_resume = world.witness()
        store = JsonlStore(self._root)
        self._out.after = await inspect(store, SESSION)
        await store.close()

    async def _resume_again(self) -> None:
        world = World()
        async with self._agent("third", world).runtime as runtime:
            session = await runtime.resume(SESSION)
            assert list(session.journal.log.events()) == self._out.repaired
            if session.journal.log.fold.header is not None:
                self._out.requests = [request(session.journal.log)]
        assert world.witness() == NOTHING, "a second resume did something"

    async def _go_on(self) -> None:
        world = World()
        agent = self._agent("fourth", world)
        async with agent.runtime as runtime:
            session = await runtime.resume(SESSION)
            self._out.outcome = await session.go_on()
            self._out.finished = list(session.journal.log.events())
        self._out.requests += agent.scripted.requests
        self._out.going_on = world.witness()


def _without_result(events: list[ev.Event]) -> set[str]:
    asked = {call.call_id for event in events if isinstance(event, ev.AssistantMessage) for call in ev.calls_of(event)}
    return asked - {event.call_id for event in events if isinstance(event, ev.ToolResult)}


def events_of(stored: StoredLog) -> list[ev.Event]:
    """The stored events, runs expanded."""
    return [event for entry in stored.entries for event in expand(entry) if isinstance(event, ev.Event)]


def log_of(stored: StoredLog, events: list[ev.Event]) -> Log:
    """A log with just these events."""
    assert stored.header is not None
    return Log(stored.header, lambda: 0, CORE, events)


def bytes_of(events) -> list[bytes]:
    """The canonical bytes of each."""
    return [encode(event) for event in events]
