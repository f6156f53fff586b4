"""A writer over a disk that is honest, and slow or broken on demand."""

import asyncio

from fencepost.core import events as ev
from fencepost.core.codec import CORE, expand
from fencepost.core.log import Log
from fencepost.errors import NoSpaceError
from fencepost.journal.writer import Writer
from fencepost.stores.base import StoredLog

HEADER = ev.Header("s1", 0, "/", 1)
FULL = NoSpaceError("no space left on /disk")
HOUR = 3_600_000


class Disk:
    """A handle that keeps what it is given, and checks the caller's half of the contract.

    `gate` holds every append until it is set; `faults` are raised in turn, one an append (None: no fault).
    """

    def __init__(self, entries=(), watermark=None):
        watermark = (entries[-1].seq if entries else -1) if watermark is None else watermark
        self.stored = StoredLog(session="s1", header=HEADER, entries=tuple(entries), watermark=watermark)
        self.events = list(entries)
        self.batches = []
        self.faults = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Queue()
        self.ended = asyncio.Queue()
        self.busy = False

    async def append(self, entries, expected_seq):
        assert not self.busy, "two appends in flight"
        assert expected_seq == len(self.events)
        batch = [event for entry in entries for event in expand(entry)]
        assert [event.seq for event in batch] == list(range(expected_seq, expected_seq + len(batch)))
        self.busy = True
        self.began.put_nowait(len(batch))
        try:
            await self.gate.wait()
            fault = self.faults.pop(0) if self.faults else None
            if fault is not None:
                raise fault
            self.batches.append(list(entries))
            self.events += batch
        finally:
            self.busy = False
            self.ended.put_nowait(len(batch))

    async def set_aside(self):
        return 0

    async def release(self):
        return None


def new_log(entries=()):
    return Log(HEADER, lambda: 1000, CORE, entries)


def note(log, text="x"):
    return log.append(ev.ToolNote, call_id="c", text=text)


class Rig:
    """A log, a writer and a disk, in that order of ownership."""

    def __init__(self, **options):
        self.disk = Disk()
        self.log = new_log()
        self.states = []
        self.writer = Writer(self.disk, self.log, on_state=self.states.append, **{"window_ms": HOUR, **options})

    def note(self, text="x"):
        return note(self.log, text)

    def sizes(self):
        return [len(batch) for batch in self.disk.batches]

    async def flushing(self):
        """A flush that has been called, and the write that it asked for has begun."""
        task = asyncio.create_task(self.writer.flush())
        await self.disk.began.get()
        return task


def answered_step(log):
    """One step whose answer asks for the call c1."""
    log.append(ev.TurnStart, turn=1, gates=("tool",), policy="p")
    log.append(ev.StepStart, turn=1, step=1)
    content = (ev.CallRequest("c1", "f", "{}"),)
    log.append(ev.AssistantMessage, turn=1, step=1, message_id="m", content=content, finish="tool_calls")


def result(log):
    return log.append(ev.ToolResult, turn=1, step=1, call_id="c1", content=())
