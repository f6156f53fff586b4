"""Forks and listings from Python."""

import pytest
from tests.runtime.rig import run

from fencepost.errors import SessionExistsError, UsageError
from fencepost.runtime.runtime import Runtime
from fencepost.stores.memory import MemoryStore
from fencepost.testing import ScriptedModel


def test_a_fork_is_resumed_like_any_session_and_goes_its_own_way():
    async def scenario():
        model = ScriptedModel(["One.", "Two."])
        async with Runtime(MemoryStore(), model, []) as runtime:
            session = await runtime.create("s1")
            await session.prompt("first")
            await session.prompt("second")
            made = await runtime.fork("s1", "f1", turn=1)
            assert (made.parent, made.closed) == ("s1", 0)
            child = await runtime.resume("f1")
            turn = await child.prompt("second, but different")
            assert turn.text == "Two.", "the script is counted by the answers in the log, and the fork has one"
            rows = {row.session: row for row in await runtime.sessions()}
            assert (rows["s1"].turns, rows["f1"].turns) == (2, 2)

    run(scenario)


def test_a_fork_gets_a_fresh_id_and_one_cut():
    async def scenario():
        async with Runtime(MemoryStore(), ScriptedModel(["One."]), []) as runtime:
            session = await runtime.create("s1")
            await session.prompt("first")
            made = await runtime.fork("s1")
            assert made.session not in {"s1", ""}
            assert (await runtime.inspect(made.session)).state == "clean"
            with pytest.raises(SessionExistsError):
                await runtime.fork("s1", made.session)
            with pytest.raises(UsageError):
                await runtime.fork("s1", at=1, turn=1)

    run(scenario)


def test_a_listing_can_be_limited():
    async def scenario():
        async with Runtime(MemoryStore(), ScriptedModel(["One."] * 3), []) as runtime:
            for name in ("s1", "s2", "s3"):
                await (await runtime.create(name)).prompt("x")
            every = await runtime.sessions()
            assert len(every) == 3
            assert await runtime.sessions(limit=2) == every[:2]

    run(scenario)
