"""The event loop keeps its beat: under a slow disk, and while another session loads 100,000 events."""

import asyncio
import threading

import pytest
from tests.runtime.rig import Agent, run, until
from tests.stores.sample import log_bytes

from fencepost.core import events as ev
from fencepost.core.codec import FORMAT
from fencepost.stores.jsonl import Disk, JsonlStore

T = 1_700_000_000_000
MANY = 100_000


class Heart:
    """Beats on the event loop for as long as it is not kept from it."""

    def __init__(self):
        self.beats = 0

    async def beat(self):
        while True:
            self.beats += 1
            await asyncio.sleep(0.001)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.beat())
        return self

    async def __aexit__(self, *exc):
        self.task.cancel()


class SlowDisk(Disk):
    """A disk whose syncs stand still until they are released."""

    def __init__(self):
        self.syncing, self.release = threading.Event(), threading.Event()

    def sync_data(self, fd):
        self.syncing.set()
        assert self.release.wait(20)
        super().sync_data(fd)


def test_a_slow_sync_stops_nobody_but_who_waits_for_it(tmp_path):
    async def scenario():
        disk = SlowDisk()
        async with Agent(["Hello."], store=JsonlStore(tmp_path, disk=disk)) as agent, Heart() as heart:
            turn = asyncio.create_task(agent.session.prompt("hi"))
            await until(disk.syncing.is_set)
            start = heart.beats
            await until(lambda: heart.beats > start + 20)
            assert not turn.done()
            assert agent.session.journal.watermark == -1
            disk.release.set()
            assert (await turn).text == "Hello."

    run(scenario)


@pytest.fixture
def large(tmp_path):
    """A store with one session of 100,000 events that no run can pack, in an interrupted turn."""
    entries = [
        ev.SessionOwner(0, T, "o", 1, resumed=False),
        ev.TurnStart(1, T, 1, ("step", "request", "tool"), "checkpoint"),
        *(ev.ToolNote(seq, T, "c", "something to read") for seq in range(2, MANY)),
    ]
    assert FORMAT == 1
    (tmp_path / "s1").mkdir(mode=0o700)
    (tmp_path / "s1" / "log.jsonl").write_bytes(log_bytes(*(entries[at : at + 1000] for at in range(0, MANY, 1000))))
    return tmp_path


class Noting(JsonlStore):
    """A store that notes the beat at which it had read a session, and at which somebody appends to it."""

    heart = None
    done = None
    appended = None

    async def own(self, session):
        handle = await super().own(session)
        self.done, append = self.heart.beats, handle.append

        async def noting(entries, expected_seq):
            self.appended = self.heart.beats
            await append(entries, expected_seq)

        handle.append = noting
        return handle

    async def read(self, session):
        stored = await super().read(session)
        self.done = self.heart.beats
        return stored


LOADS = {
    "resume": lambda runtime: runtime.resume("s1"),
    "inspect": lambda runtime: runtime.inspect("s1"),
    "sessions": lambda runtime: runtime.sessions(),
}


@pytest.mark.parametrize("what", LOADS)
def test_loading_a_large_session_stops_nobody(large, what):
    """Neither while the store reads, nor while what it read is folded."""

    async def scenario():
        store = Noting(large)
        async with Agent([], store=store, session="other") as agent, Heart() as heart:
            store.heart = heart
            start = heart.beats
            await LOADS[what](agent.runtime)
            assert store.done > start + 3
            assert (store.appended or heart.beats) > store.done + 3

    run(scenario)
