"""A store that stops at a chosen batch, so that a process can be killed exactly there.

It wraps any store and changes nothing but time: before or after the append of a batch that holds a given event, it
writes a marker file and then never returns. Used by the demo and by the crash tests, never by a runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import msgspec

from fencepost.core import events as ev
from fencepost.stores.base import Handle, Store, StoredLog

When = Literal["before", "after"]


class PausePoint(msgspec.Struct, frozen=True):
    """Where to stop: before or after the batch with the first event that `matches`."""

    when: When
    matches: Callable[[ev.Entry], bool]
    marker: Path


async def stop_here(marker: Path) -> NoReturn:
    """Say that the point is reached, and stay there."""
    marker.write_text("reached\n")
    await asyncio.Event().wait()
    raise AssertionError("a paused process goes on")


class PausingStore:
    """See the module."""

    def __init__(self, inner: Store, point: PausePoint) -> None:
        self._inner = inner
        self._point = point

    @property
    def url(self) -> str:
        """As the inner store's."""
        return self._inner.url

    @property
    def durable(self) -> bool:
        """As the inner store's."""
        return self._inner.durable

    @property
    def ownership(self) -> str:
        """As the inner store's."""
        return self._inner.ownership

    def files(self, session: str) -> Path:
        """As the inner store's."""
        return self._inner.files(session)

    async def create(self, header: ev.Header) -> Handle:
        """A handle that pauses."""
        return PausingHandle(await self._inner.create(header), self._point)

    async def own(self, session: str) -> Handle:
        """A handle that pauses."""
        return PausingHandle(await self._inner.own(session), self._point)

    async def read(self, session: str) -> StoredLog:
        """As the inner store's."""
        return await self._inner.read(session)

    async def sessions(self) -> list[str]:
        """As the inner store's."""
        return await self._inner.sessions()

    async def close(self) -> None:
        """As the inner store's."""
        await self._inner.close()


class PausingHandle:
    """A handle that stops at its point."""

    def __init__(self, inner: Handle, point: PausePoint) -> None:
        self._inner = inner
        self._point = point

    @property
    def stored(self) -> StoredLog:
        """As the inner handle's."""
        return self._inner.stored

    async def append(self, entries: Sequence[ev.Entry], expected_seq: int) -> None:
        """Append, unless this is where to stop."""
        here = any(self._point.matches(entry) for entry in entries)
        if here and self._point.when == "before":
            await stop_here(self._point.marker)
        await self._inner.append(entries, expected_seq)
        if here:
            await stop_here(self._point.marker)

    async def set_aside(self) -> int:
        """As the inner handle's."""
        return await self._inner.set_aside()

    async def release(self) -> None:
        """As the inner handle's."""
        await self._inner.release()
