"""Who waits for which turn: one promise for each input that was acknowledged here, kept or broken exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fencepost.errors import ClosedError
from fencepost.runtime.loop import TurnResult


class Outcomes:
    """The promises of one session, by input."""

    def __init__(self) -> None:
        self._promised: dict[str, asyncio.Future[TurnResult]] = {}

    def promise(self, input_id: str) -> asyncio.Future[TurnResult]:
        """Promise an outcome for the turn of this input."""
        self._promised[input_id] = promise = new_promise()
        return promise

    def of(self, input_id: str) -> asyncio.Future[TurnResult]:
        """What was promised. Wait for it shielded: it belongs to the turn, not to who waits."""
        return self._promised[input_id]

    def shared(self, input_id: str) -> asyncio.Future[TurnResult] | None:
        """The same, safe to cancel; None where nothing was promised, or it was kept already."""
        promise = self._promised.get(input_id)
        return None if promise is None else asyncio.shield(promise)

    def settle(self, inputs: Iterable[str], outcome: TurnResult | BaseException) -> None:
        """Tell those who wait for these inputs how their turn ended, or why there was none."""
        for name in inputs:
            settle(self._promised.pop(name, None), outcome)

    def settle_all(self, outcome: BaseException) -> None:
        """Tell everybody who still waits that there will be no turn."""
        self.settle(list(self._promised), outcome)


def new_promise() -> asyncio.Future[TurnResult]:
    """A promise that belongs to no input."""
    return asyncio.get_running_loop().create_future()


def settle(promise: asyncio.Future[TurnResult] | None, outcome: TurnResult | BaseException) -> None:
    """Keep or break one promise. Later outcomes are ignored."""
    if promise is None or promise.done():
        return
    if isinstance(outcome, TurnResult):
        promise.set_result(outcome)
        return
    if isinstance(outcome, asyncio.CancelledError):
        outcome = ClosedError("the session was torn down with its event loop")
    promise.set_exception(outcome)
    promise.exception()  # looked at: perhaps nobody waits
