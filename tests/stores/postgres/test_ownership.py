"""One writer: a lease by the server's clock, an epoch that is compared in every append, and real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable

import pytest
from tests.stores.postgres.child import Child
from tests.stores.postgres.fixtures import opened
from tests.stores.sample import header, lines_of, note, notes

from fencepost.core.codec import CORE
from fencepost.errors import HeldError, LostOwnershipError, NotSavedError
from fencepost.journal.inspect import inspect
from fencepost.journal.session import Identity, Journal

Sql = Callable[..., list[tuple]]

RUN_OUT = "UPDATE head SET lease_until = clock_timestamp() - interval '1 second'"
"""Time passes: what an owner that renews nothing comes to."""


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def test_of_two_that_race_one_wins(url: str) -> None:
    with Child(url) as first, Child(url) as second:
        assert first.ask("create s1") == "ok 0"
        for end in range(1, 6):
            assert first.ask("append 1") == f"ok {end}"
            assert first.ask("release") == "ok"
            for child in (first, second):
                child.tell("own s1")
            answers = {child: child.hear() for child in (first, second)}
            first, second = sorted((first, second), key=lambda child: answers[child], reverse=True)
            assert answers[first] == f"ok {end}"
            assert answers[second].startswith("error HELD session s1 is held by")
            assert f"held by {first.pid} on" in answers[second]


def test_a_killed_owner_is_replaced_when_its_lease_ran_out(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            with Child(url) as child:
                assert child.ask("create s1") == "ok 0"
                assert child.ask("append 3") == "ok 3"
                child.kill()
                with pytest.raises(HeldError, match=rf"held by {child.pid} on .* since .*; its lease runs for \d+ s"):
                    await store.own("s1")
                assert (await inspect(store, "s1")).state == "running"
                sql(RUN_OUT)
                assert (await inspect(store, "s1")).state == "clean"
                handle = await store.own("s1")
                assert handle.stored.watermark == 2
                await handle.append([note(3)], 3)

    asyncio.run(scenario())


def test_an_owner_that_was_stopped_past_its_lease_lands_nothing(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            with Child(url) as child:
                assert child.ask("create s1") == "ok 0"
                assert child.ask("append 2") == "ok 2"
                child.signal(signal.SIGSTOP)
                sql(RUN_OUT)
                handle = await store.own("s1")
                child.tell("append 1")
                child.signal(signal.SIGCONT)
                answer = child.hear()
                assert answer.startswith("error LOST_OWNERSHIP session s1 is held by")
                assert f"held by {os.getpid()} on" in answer
                await handle.append([note(2, "ours")], 2)
                assert child.ask("append 1").startswith("error LOST_OWNERSHIP")
                stored = await store.read("s1")
                assert [entry.text for entry in stored.entries][2:] == ["ours"]

    asyncio.run(scenario())


def test_an_owner_whose_lease_ran_out_goes_on_if_nobody_took_its_place(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            sql(RUN_OUT)
            assert (await store.read("s1")).owner is None
            await handle.append([note(1)], 1)
            owner = (await store.read("s1")).owner
            assert owner is not None
            assert owner.pid == os.getpid()
            with pytest.raises(HeldError):
                await store.own("s1")

    asyncio.run(scenario())


def test_a_lease_is_renewed_while_its_owner_lives_and_its_event_loop_is_blocked(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(f"{url}&lease=1") as store:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            seen = {sql("SELECT lease_until FROM head")[0][0]}

            def renewed() -> bool:
                seen.add(sql("SELECT lease_until FROM head")[0][0])
                return len(seen) > 4

            until(renewed)  # on the event loop, which does nothing else meanwhile
            assert sql("SELECT lease_until > clock_timestamp() FROM head") == [(True,)]
            await handle.append([note(1)], 1)

    asyncio.run(scenario())


def test_a_session_may_be_taken_over_from_a_living_owner_by_who_asks_for_it(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store, opened(url) as other:
            first = await store.create(header())
            await first.append([note(0)], 0)
            with pytest.raises(HeldError):
                await other.own("s1")
            second = await other.take_over("s1")
            with pytest.raises(LostOwnershipError, match="taken over from this writer"):
                await first.append([note(1)], 1)
            await first.release()  # and that takes nothing from the new owner
            await second.append([note(1, "second")], 1)
            assert lines_of((await store.read("s1")).entries) == lines_of([note(0), note(1, "second")])

    asyncio.run(scenario())


def test_the_gates_of_a_replaced_owner_fail(url: str) -> None:
    async def scenario() -> None:
        identity = Identity("ada", lambda: 1_700_000_000_000, lambda prefix: f"{prefix}-1")
        async with opened(url) as store, opened(url) as other:
            journal = await Journal.create(store, "s1", "/", identity, CORE)
            journal.append(type(note(0)), call_id="c", text="mine")
            await journal.flush()
            await other.take_over("s1")
            journal.append(type(note(0)), call_id="c", text="late")
            with pytest.raises(NotSavedError) as failed:
                await journal.flush()
            assert isinstance(failed.value.__cause__, LostOwnershipError)
            with pytest.raises(NotSavedError):
                await journal.close()
            assert (await store.read("s1")).watermark == 1

    asyncio.run(scenario())


def test_taking_a_session_changes_no_byte_of_its_log(url: str, sql: Sql) -> None:
    def log() -> tuple[object, ...]:
        return (
            sql("SELECT *, xmin::text, ctid::text FROM entry ORDER BY session, seq"),
            sql("SELECT *, xmin::text, ctid::text FROM session"),
            sql("SELECT next_seq, updated FROM head"),
        )

    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(header())
            await handle.append(notes(0, 3), 0)
            before = log()
            await handle.release()
            await (await store.own("s1")).release()
            await store.own("s1")
            with pytest.raises(HeldError):
                await store.own("s1")
            assert log() == before

    asyncio.run(scenario())


def test_an_id_that_a_dead_process_reserved_is_free_after_its_lease(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            with Child(url) as child:
                assert child.ask("create s1") == "ok 0"
                child.kill()
            with pytest.raises(HeldError):
                await store.create(header())
            sql(RUN_OUT)
            handle = await store.create(header())
            assert await store.sessions() == []
            await handle.append([note(0)], 0)
            assert await store.sessions() == ["s1"]

    asyncio.run(scenario())


def test_processes_that_append_at_once_get_dense_logs(url: str) -> None:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(url)) for _ in range(8)]
        for number, child in enumerate(children):
            assert child.ask(f"create s{number}") == "ok 0"
        for child in children:
            child.tell("append 200")
        assert [child.hear() for child in children] == ["ok 200"] * 8

        async def scenario() -> None:
            async with opened(url) as store:
                for number, child in enumerate(children):
                    stored = await store.read(f"s{number}")
                    assert lines_of(stored.entries) == lines_of(notes(0, 200, f"by {child.pid}"))
                    assert stored.damage == ()

        asyncio.run(scenario())


def test_a_forked_child_owns_nothing_and_breaks_nothing(url: str) -> None:
    with Child(url) as child:
        assert child.ask("create s1") == "ok 0"
        assert child.ask("append 2") == "ok 2"
        assert child.ask("fork 1").startswith("ok LOST_OWNERSHIP 2")
        assert child.ask("append 2") == "ok 4"
