"""Forks: any legal log, cut anywhere, begins a new legal, closed one; its parent is untouched and owes it nothing."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import HEADER, VOCABULARY, logs, moderate
from tests.journal.test_session import files, later, put
from tests.stores.sample import call, header, lines_of, log_bytes, notes, turn_with_call

from fencepost.core import events as ev
from fencepost.core.codec import CORE, encode, expand, pack
from fencepost.core.lifecycle import State
from fencepost.core.log import Log
from fencepost.core.verdict import TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN, verdicts
from fencepost.errors import DamagedError, SessionExistsError, SessionNotFoundError, UnsupportedError, UsageError
from fencepost.journal.fork import Cut, fork
from fencepost.journal.session import Journal
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.memory import MemoryStore


async def stored_in(store, entries, head=HEADER):
    handle = await store.create(head)
    await handle.append(list(pack(entries)), 0)
    await handle.release()


def calls_in(stored):
    return Log(stored.header, lambda: 0, VOCABULARY, stored.entries).fold.calls


# --- any log, cut anywhere --------------------------------------------------------------------------------------


@moderate
@given(logs(), st.data())
def test_a_fork_is_a_legal_closed_log_that_begins_as_its_parent(log, data):
    if not log.entries:
        return
    at = data.draw(st.integers(0, len(log.entries) - 1))

    async def scenario():
        store = MemoryStore()
        await stored_in(store, log.entries)
        made = await fork(store, "s1", "f", later(), VOCABULARY, Cut(seq=at))
        child, parent = await store.read("f"), await store.read("s1")
        assert made.forked_at == child.header.forked_at == at
        assert child.header.parent == "s1"
        assert lines_of(child.entries)[: at + 1] == lines_of(parent.entries)[: at + 1]
        assert len(lines_of(child.entries)) == at + 1 + made.closed
        fold = Log(child.header, lambda: 0, VOCABULARY, child.entries).fold
        assert fold.state is State.IDLE
        assert all(one.result is not None for one in fold.calls.values())
        assert lines_of(parent.entries) == lines_of(log.entries)
        told = {item.call.call_id: item.verdict for item in verdicts(log.fold)}
        for name, record in fold.calls.items():
            if record.result.seq > at and record.result.code == TOOL_NOT_STARTED:
                assert told[name] == "not_started", "what ran in the parent is never innocent in the fork (law 2)"
        await store.close()

    asyncio.run(scenario())


def test_a_cut_inside_a_run_of_chunks():
    entries = turn_with_call()[:4]
    chunks = [ev.AssistantChunk(seq, 2_000 + seq, 1, 1, f"word{seq} ") for seq in range(4, 104)]

    async def scenario():
        store = MemoryStore()
        await stored_in(store, [*entries, *chunks], header())
        await fork(store, "s1", "f", later(), CORE, Cut(seq=50))
        child = await store.read("f")
        events = [event for entry in child.entries for event in expand(entry)]
        assert events[:51] == [*entries, *chunks][:51]
        assert [type(event) for event in events[51:]] == [ev.SessionOwner, ev.StepEnd, ev.TurnEnd]

    asyncio.run(scenario())


# --- calls that are open at the cut -----------------------------------------------------------------------------

END = 1_700_000_000_000
RESULT = ev.ToolResult(6, END, 1, 1, "call-1", (ev.Text("sent"),))
DENIED = ev.ToolResult(5, END, 1, 1, "call-1", (ev.Text("no"),), is_error=True, code="DENIED")
STARTED = [*turn_with_call(), call(5)]

CASES = {
    "the parent ran it behind the cut": ([*STARTED, RESULT], 4, TOOL_OUTCOME_UNKNOWN),
    "the parent let it go behind the cut": (STARTED, 4, TOOL_OUTCOME_UNKNOWN),
    "it was let go before the cut": (STARTED, 5, TOOL_OUTCOME_UNKNOWN),
    "it was let go nowhere": (turn_with_call(), 4, TOOL_NOT_STARTED),
    "it was denied behind the cut": ([*turn_with_call(), DENIED], 4, TOOL_NOT_STARTED),
}


@pytest.mark.parametrize("case", CASES)
def test_an_open_call_gets_its_closing_result_in_the_fork_only(case, tmp_path):
    entries, at, code = CASES[case]
    put(tmp_path, log_bytes(entries))
    before = files(tmp_path)

    async def scenario():
        store = JsonlStore(tmp_path)
        await fork(store, "s1", "f", later(), CORE, Cut(seq=at))
        result = calls_in(await store.read("f"))["call-1"].result
        assert (result.code, result.synthetic, result.is_error) == (code, True, True)
        assert "forked from s1" in ev.text_of(result.content)
        assert {path: data for path, data in files(tmp_path).items() if "f" not in path.parent.name} == before
        await store.close()

    asyncio.run(scenario())


def test_a_living_owner_may_be_letting_a_call_go_right_now(tmp_path):
    put(tmp_path, log_bytes(turn_with_call()))

    async def scenario():
        store, other = JsonlStore(tmp_path), JsonlStore(tmp_path)
        handle = await store.own("s1")
        await fork(other, "s1", "f", later(), CORE)
        assert calls_in(await other.read("f"))["call-1"].result.code == TOOL_OUTCOME_UNKNOWN
        await handle.append([call(5)], 5)
        await store.close()
        await other.close()

    asyncio.run(scenario())


def test_bytes_that_were_set_aside_in_the_parent_count_in_the_fork(tmp_path):
    torn = b'{"type":"tool/call","seq":5,"call_id":"call-1","na'
    put(tmp_path, log_bytes(turn_with_call()) + torn)

    async def scenario():
        store = JsonlStore(tmp_path)
        await fork(store, "s1", "f", later(), CORE)
        assert calls_in(await store.read("f"))["call-1"].result.code == TOOL_OUTCOME_UNKNOWN
        await store.close()

    asyncio.run(scenario())


# --- depth, turns, ids ------------------------------------------------------------------------------------------


def turns(count):
    """Some closed turns, three events each, behind an owner."""
    out = [ev.SessionOwner(0, END, "owner", 1, resumed=False)]
    for turn in range(1, count + 1):
        seq = len(out)
        out += [
            ev.InputQueued(seq, END, f"i{turn}", "turn", (ev.Text(f"task {turn}"),)),
            ev.TurnStart(seq + 1, END, turn, ("step", "request", "tool"), "checkpoint"),
            ev.TurnEnd(seq + 2, END, turn, "completed"),
        ]
    return out


def test_a_fork_of_a_fork_of_a_fork_needs_none_of_them():
    async def scenario():
        store = MemoryStore()
        await stored_in(store, turns(5), header())
        parent = "s1"
        for depth, turn in enumerate((4, 3, 2), 1):
            made = await fork(store, parent, f"f{depth}", later(), CORE, Cut(turn=turn))
            assert (made.forked_at, made.closed) == (turn * 3, 0)
            await store.delete(parent)
            parent = f"f{depth}"
        child = await store.read("f3")
        assert (child.header.parent, child.header.forked_at) == ("f2", 6)
        assert lines_of(child.entries) == lines_of(turns(2))
        journal, recovery = await Journal.resume(store, "f3", later(), CORE)
        assert recovery.closed == 0
        journal.append(ev.TurnStart, turn=3, gates=(), policy="")
        await journal.close()

    asyncio.run(scenario())


def test_a_turn_that_is_open_is_taken_to_the_end_of_the_log():
    async def scenario():
        store = MemoryStore()
        await stored_in(store, turn_with_call(), header())
        made = await fork(store, "s1", "f", later(), CORE, Cut(turn=1))
        assert (made.forked_at, made.closed) == (4, 4)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (Cut(seq=16), "its events are 0 to 15"),
        (Cut(seq=-1), "its events are 0 to 15"),
        (Cut(turn=6), "it has 5 turns"),
        (Cut(turn=0), "it has 5 turns"),
    ],
)
def test_a_cut_beyond_the_end_is_refused(cut, said):
    async def scenario():
        store = MemoryStore()
        await stored_in(store, turns(5), header())
        with pytest.raises(UsageError, match=said):
            await fork(store, "s1", "f", later(), CORE, cut)
        assert await store.sessions() == ["s1"]

    asyncio.run(scenario())


def test_what_cannot_be_continued_cannot_be_forked(tmp_path):
    put(tmp_path, log_bytes(turn_with_call()).replace(b"checkpoint", b"checkpoinT"))
    put(tmp_path, log_bytes(notes(0, 2)).replace(b'"format":1', b'"format":9'), "s2")
    before = files(tmp_path)

    async def scenario():
        store = JsonlStore(tmp_path)
        with pytest.raises(DamagedError):
            await fork(store, "s1", "f", later(), CORE)
        with pytest.raises(UnsupportedError, match="newer"):
            await fork(store, "s2", "f", later(), CORE)
        with pytest.raises(SessionNotFoundError):
            await fork(store, "nobody", "f", later(), CORE)
        await store.close()

    asyncio.run(scenario())
    assert files(tmp_path) == before


def test_an_id_that_is_taken_is_not_written_over():
    async def scenario():
        store = MemoryStore()
        await stored_in(store, turns(2), header())
        await stored_in(store, turns(1), header("f"))
        with pytest.raises(SessionExistsError):
            await fork(store, "s1", "f", later(), CORE)
        assert lines_of((await store.read("f")).entries) == lines_of(turns(1))

    asyncio.run(scenario())


def test_a_long_fork_of_files_is_closed_by_many_commit_lines(tmp_path):
    """Whoever reads it does so in bites, and a rotten byte costs one of them."""

    async def scenario():
        store = JsonlStore(tmp_path)
        await stored_in(store, notes(0, 1000), header())
        await fork(store, "s1", "f", later(), CORE)
        log = tmp_path / "f" / "log.jsonl"
        data = log.read_bytes()
        assert data.count(b'{"type":"commit"') > 5
        log.write_bytes(data.replace(b"note 999", b"nope 999"))
        stored = await store.read("f")
        assert stored.damage
        assert len(stored.entries) > 800
        assert [encode(entry) for entry in stored.entries] == [encode(entry) for entry in notes(0, len(stored.entries))]
        await store.close()

    asyncio.run(scenario())
