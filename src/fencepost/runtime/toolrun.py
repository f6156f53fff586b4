"""From the calls of an answer to their results: which call runs when.

Rules:
    1. Calls are prepared, and started, in the model's order. One that may not run beside those that run, or finds no
       room among them, waits for its lane, and all behind it wait with it. Nested calls are part of their parent.
    2. Results are appended in the order in which calls finish.
    3. After a cancel or a fault nothing more starts. What runs is seen to its end.
    4. When `run` returns or raises, each call has its result (law 5).
    5. A call whose lane cannot be told is refused: unordered it might overtake what it depends on.

What happens to one call is not its business: that is `call`.
"""

from __future__ import annotations

import asyncio

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.runtime.call import Calls, Site, ToolRules
from fencepost.runtime.lanes import ALONE, Lane, lane_of
from fencepost.runtime.replies import refused, sentence, unknown
from fencepost.runtime.subjects import Candidate
from fencepost.runtime.tools import ToolReply

__all__ = ["ToolRules", "ToolRun"]


class ToolRun:
    """The calls of one step."""

    def __init__(self, site: Site) -> None:
        self._calls = Calls(site)
        self._fold = site.journal.log.fold
        self._parallel = max(1, site.rules.parallel)
        self._running: dict[asyncio.Task[ToolReply], Lane] = {}

    async def run(self, calls: tuple[ev.CallRequest, ...]) -> None:
        """Run the calls of one answer.

        Raises:
            Exception: the fault that stopped the step; the transcript is whole all the same.
        """
        try:
            for call in calls:
                await self._one(call, last=call is calls[-1])
        finally:
            await self._balance(calls)
        if self._calls.fault is not None:
            raise self._calls.fault

    async def _one(self, call: ev.CallRequest, *, last: bool) -> None:
        prepared = await self._calls.prepare(call)
        if prepared is None:
            return
        lane = self._lane(prepared)
        if lane is None:
            return
        await self._room(lane)
        if self._calls.abort_if_stopped(call.call_id):
            return
        work = self._calls.execute(self._calls.admit(prepared))
        if lane is not ALONE and not last:
            task = asyncio.create_task(work, name=f"tool {prepared.tool.name}")
            self._running[task] = lane
            task.add_done_callback(self._finished)
        else:
            # Here, not in a task: then the step ends in the very tick in which the result came, and shares its write.
            if self._running:
                await asyncio.sleep(0)  # those before it begin before it
            await work

    def _finished(self, task: asyncio.Task[ToolReply]) -> None:
        del self._running[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._calls.fault = self._calls.fault or error

    def _lane(self, call: Candidate) -> Lane | None:
        """The call's lane; None where nobody can tell, and the call got its result (rule 5)."""
        try:
            return lane_of(call)
        except Exception as error:  # noqa: BLE001 - whatever a tool's lock raises, no other call suffers from it
            why = f"what it would change could not be told, so it was not let through: {sentence(error)}"
            self._calls.record(call.call_id, refused(v.DENIED, why))
            return None

    async def _room(self, lane: Lane) -> None:
        """Wait until the call may run beside those that run."""
        most = 0 if lane is ALONE else self._parallel - 1
        while len(self._running) > most or not all(lane.beside(other) for other in self._running.values()):
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def _balance(self, calls: tuple[ev.CallRequest, ...]) -> None:
        """On every way out: nothing runs, and what has no result yet gets one."""
        try:
            await self._room(ALONE)
        finally:
            for call in calls:
                record = self._fold.calls[call.call_id]
                if record.result is None:
                    why = "the step was torn down"
                    entered = record.admitted is not None
                    self._calls.record(
                        call.call_id, unknown(why) if entered else refused(v.ABORTED_BEFORE_DISPATCH, why)
                    )
