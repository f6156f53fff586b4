"""Retrying a model request inside its step. The only place that retries: model SDKs are told not to.

Each retry is recorded (`request/retry`) before the wait, and passes the request gate again. The wait doubles from
`base` up to `limit`, with some chance in it so that many clients do not come back at once; a provider's Retry-After
is honoured, up to `patience`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.errors import ModelError
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Answer, Attempt

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class RetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugin.retry]`.

    Attributes:
        attempts: requests in all, the first included.
        base: seconds before the first retry.
        limit: seconds that a computed wait has at most.
        patience: seconds that a provider may ask for at most; if it asks for more the request fails.
    """

    attempts: Annotated[int, msgspec.Meta(ge=1)] = 5
    base: Seconds = 0.5
    limit: Seconds = 20.0
    patience: Seconds = 120.0


class Retry:
    """The plugin.

    Args:
        chance: a number from 0 to 1 for each wait; handed in by tests.
    """

    name = "retry"
    requires: tuple[str, ...] = ()

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance

    def apply(self, context: PluginContext) -> None:
        """Stand around the request of a step."""
        settings = context.configured(RetrySettings)

        async def retry(attempt: Attempt, send: Callable[[Attempt], Awaitable[Answer]]) -> Answer:
            for number in range(1, settings.attempts):
                try:
                    return await send(attempt)
                except ModelError as error:
                    delay = self._delay(settings, number, error)
                    if delay is None:
                        raise
                    _record(attempt, number, error, delay)
                    await _wait(attempt, delay)
            return await send(attempt)

        context.hook(lambda hooks: hooks.model_request, Position.RETRY, retry)

    def _delay(self, settings: RetrySettings, number: int, error: ModelError) -> float | None:
        """Seconds to wait before the next attempt, or None where there is none."""
        if not error.retryable:
            return None
        if error.retry_after is not None:
            return max(0.0, error.retry_after) if error.retry_after <= settings.patience else None
        whole = min(settings.limit, settings.base * 2.0 ** (number - 1))
        return whole * (0.5 + self._chance() / 2)


def _record(attempt: Attempt, number: int, error: ModelError, delay: float) -> None:
    attempt.journal.append(
        ev.RequestRetry,
        turn=attempt.turn,
        step=attempt.step,
        attempt=number,
        code=error.code,
        message=str(error),
        delay_ms=round(delay * 1000),
    )


async def _wait(attempt: Attempt, delay: float) -> None:
    try:
        await asyncio.wait_for(attempt.cancel.wait(), delay)
    except TimeoutError:
        return  # nobody cancelled: the wait is over
    attempt.cancel.check()
