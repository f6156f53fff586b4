"""Salvage of real log files: every kind of damage becomes a session that opens, tells what is missing, and goes on."""

import asyncio
import json

import msgspec
import pytest
from tests.journal.test_session import files, later, put
from tests.stores.sample import batch, call, header, lines_of, log_bytes, note, notes, turn_with_call

from fencepost.core import events as ev
from fencepost.core.codec import CORE, encode
from fencepost.core.verdict import DENIED
from fencepost.errors import DamagedError, HeldError, SessionExistsError, UsageError
from fencepost.journal.inspect import inspect, rows
from fencepost.journal.salvage import salvage_session, set_torn_aside
from fencepost.journal.session import Journal
from fencepost.stores.jsonl import JsonlStore

TIME = 1_700_000_000_000


def result(seq, call_id="call-1", turn=1, code=""):
    return ev.ToolResult(seq, TIME, turn, 1, call_id, (ev.Text("sent"),), bool(code), code)


def second_turn(first):
    _, start, *rest = turn_with_call(first - 1, "call-2")
    answer = msgspec.structs.replace(rest[-1], turn=2)
    step = msgspec.structs.replace(rest[0], turn=2)
    return [msgspec.structs.replace(start, turn=2), step, rest[1], answer]


FIRST = turn_with_call()
RAN = [call(5), result(6)]
CLOSED = [ev.StepEnd(7, TIME, 1, 1), ev.TurnEnd(8, TIME, 1, "completed")]
SECOND = second_turn(9)
DENIAL = [result(13, "call-2", 2, DENIED), ev.StepEnd(14, TIME, 2, 1), ev.TurnEnd(15, TIME, 2, "completed")]
BATCHES = (FIRST, RAN, CLOSED, SECOND, DENIAL)
EVERYTHING = [entry for part in BATCHES for entry in part]
WHOLE = log_bytes(*BATCHES)
HEADER_LINE = encode(header()) + b"\n"
AT = WHOLE.index(b'{"type":"tool/call"')
LINE = WHOLE.index(b"\n", AT) + 1 - AT
BEHIND = WHOLE.index(b'{"type":"step/end"')


def flipped(at):
    return WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :]


KINDS = {
    "a hole of NULs": WHOLE[: AT + 9] + bytes(60) + WHOLE[AT + 69 :],
    "a flipped bit that no record shows": flipped(WHOLE.index(b"sent")),
    "a flipped bit in a brace": flipped(AT),
    "a cut in the middle": WHOLE[:AT] + WHOLE[BEHIND:],
    "half a record, welded to the next": WHOLE[: AT + 20] + WHOLE[AT + LINE :],
    "a torn header": WHOLE[20:],
    "an empty file": b"",
    "foreign lines": WHOLE[:AT] + b"<<<<<<< HEAD\n" + WHOLE[AT:],
    "a foreign line that is welded": WHOLE[:AT] + b"=======" + WHOLE[AT:],
    "a record twice": WHOLE[: AT + LINE] + WHOLE[AT:],
    "a seq that is another": WHOLE.replace(b'"tool/call","seq":5', b'"tool/call","seq":4'),
}


def by_kind(function):
    return pytest.mark.parametrize("data", KINDS.values(), ids=list(KINDS))(function)


def salvaging(root, check, to="new"):
    async def scenario():
        store = JsonlStore(root)
        try:
            made = await salvage_session(store, "s1", to, later(), CORE, "/elsewhere")
            await check(store, made)
        finally:
            await store.close()

    asyncio.run(scenario())


def records_of(entries):
    """What a log keeps, seqs aside."""
    out = []
    for line in lines_of(entries):
        record = json.loads(line)
        record = json.loads(record["original"]) if record["type"] == "log/salvaged" else record
        out.append({**record, "seq": None})
    return out


@by_kind
def test_it_becomes_a_session_that_opens_and_goes_on(tmp_path, data):
    put(tmp_path, data)
    before = files(tmp_path)

    async def check(store, made):
        found = await inspect(store, "new")
        assert (found.state, found.problem, found.tail_bytes) == ("clean", None, 0)
        stored = await store.read("new")
        cwd = "/home/ada" if data.startswith(HEADER_LINE) else "/elsewhere"
        assert (stored.header.parent, stored.header.cwd) == ("s1", cwd)
        assert stored.header.salvaged_at is not None
        assert any(isinstance(entry, ev.Gap) for entry in stored.entries)
        journal, recovery = await Journal.resume(store, "new", later(), CORE)
        assert (recovery.closed, recovery.set_aside) == (0, 0)
        turn = journal.log.fold.turn.number + 1 if journal.log.fold.turn else 1
        journal.append(ev.TurnStart, turn=turn, gates=("tool",), policy="checkpoint")
        await journal.close()
        assert (await inspect(store, "new")).state == "interrupted"
        old = {path: content for path, content in files(tmp_path).items() if path.parent.name == "s1"}
        assert old == before, "the original is untouched (law 7)"

    salvaging(tmp_path, check)


@by_kind
def test_no_record_that_the_store_can_read_is_lost(tmp_path, data):
    put(tmp_path, data)

    async def check(store, made):
        original = await store.read("s1")
        have = [record for line in made.lines for record in records_of((await store.read(line.session)).entries)]
        for record in records_of((*original.entries, *original.beyond)):
            assert record in have

    salvaging(tmp_path, check)


@by_kind
def test_no_call_at_the_damage_or_beyond_it_is_not_started(tmp_path, data):
    """Neither in the damaged session nor in what is made of it; not even the one that was denied."""
    put(tmp_path, data)

    async def check(store, made):
        for session in ("s1", *(line.session for line in made.lines)):
            verdicts = {found.call_id: found.verdict for found in (await inspect(store, session)).calls}
            assert "not_started" not in verdicts.values()

    salvaging(tmp_path, check)


@by_kind
def test_it_is_listed_beside_a_sound_neighbour(tmp_path, data):
    put(tmp_path, data)
    put(tmp_path, log_bytes(notes(0, 2), session="s2"), "s2")

    async def scenario():
        store = JsonlStore(tmp_path)
        found = {row.session: row.state for row in await rows(store)}
        assert found == {"s1": "damaged", "s2": "clean"}
        await store.close()

    asyncio.run(scenario())


# --- two writers ------------------------------------------------------------------------------------------------


REPAIRED = [result(5, code="TOOL_NOT_STARTED"), ev.StepEnd(6, TIME, 1, 1), ev.TurnEnd(7, TIME, 1, "interrupted")]


@pytest.mark.parametrize(("first", "second"), [(REPAIRED, RAN), (RAN, REPAIRED)])
def test_two_lines_of_events_become_two_sessions_that_both_open(tmp_path, first, second):
    """Someone repaired beside the living: the one line says that the call never started, in the other it ran."""
    put(tmp_path, log_bytes(FIRST, first) + batch(second))

    async def check(store, made):
        assert [line.session for line in made.lines] == ["new", "new-2"]
        verdicts = []
        for line in made.lines:
            await (await Journal.resume(store, line.session, later(), CORE))[0].close()
            found = await inspect(store, line.session)
            assert found.state == "clean"
            verdicts += [view.verdict for view in found.calls]
        assert sorted(verdicts) == ["completed", "outcome_unknown"]
        fork = await store.read("new-2")
        assert (fork.header.parent, fork.header.forked_at) == ("s1", 4)
        assert lines_of(fork.entries)[:5] == lines_of(FIRST)
        assert "not_started" not in {view.verdict for view in (await inspect(store, "s1")).calls}

    salvaging(tmp_path, check)


def test_nothing_is_written_when_the_name_of_a_second_line_is_taken(tmp_path):
    put(tmp_path, log_bytes(FIRST, REPAIRED) + batch(RAN))
    put(tmp_path, log_bytes(notes(0, 1), session="new-2"), "new-2")

    async def scenario():
        store = JsonlStore(tmp_path)
        with pytest.raises(SessionExistsError):
            await salvage_session(store, "s1", "new", later(), CORE, "/")
        assert sorted(await store.sessions()) == ["new-2", "s1"]
        await store.close()

    asyncio.run(scenario())


# --- what is refused, and the tail ------------------------------------------------------------------------------


def test_a_torn_tail_is_marked_and_what_it_names_is_unknown(tmp_path):
    put(tmp_path, log_bytes(FIRST) + encode(call(5))[:-9])

    async def check(store, made):
        (line,) = made.lines
        assert (line.intact, line.gaps) == (5, 1)
        assert [view.verdict for view in (await inspect(store, "new")).calls] == ["outcome_unknown"]

    salvaging(tmp_path, check)


def test_what_is_not_damaged_is_not_salvaged(tmp_path):
    put(tmp_path, log_bytes(FIRST))

    async def scenario():
        store = JsonlStore(tmp_path)
        with pytest.raises(UsageError, match="interrupted, not damaged"):
            await salvage_session(store, "s1", "new", later(), CORE, "/")
        assert await store.sessions() == ["s1"]
        await store.close()

    asyncio.run(scenario())


def test_repair_sets_the_torn_tail_aside_and_nothing_else(tmp_path):
    put(tmp_path, log_bytes(FIRST) + b"{torn")

    async def scenario():
        store = JsonlStore(tmp_path)
        assert await set_torn_aside(store, "s1") == 5
        assert (tmp_path / "s1" / "log.jsonl").read_bytes() == log_bytes(FIRST)
        assert await set_torn_aside(store, "s1") == 0
        assert [view.verdict for view in (await inspect(store, "s1")).calls] == ["outcome_unknown"]
        await store.close()

    asyncio.run(scenario())


def test_repair_needs_the_lock_and_never_cuts_damage(tmp_path):
    put(tmp_path, KINDS["a hole of NULs"])
    put(tmp_path, log_bytes([note(0)], session="s2") + b"{torn", "s2")

    async def scenario():
        store, other = JsonlStore(tmp_path), JsonlStore(tmp_path)
        before = files(tmp_path)
        with pytest.raises(DamagedError, match="never cut"):
            await set_torn_aside(store, "s1")
        handle = await other.own("s2")
        with pytest.raises(HeldError):
            await set_torn_aside(store, "s2")
        with pytest.raises(HeldError):
            await salvage_session(store, "s2", "new", later(), CORE, "/")
        await handle.release()
        assert files(tmp_path) == before
        await store.close()
        await other.close()

    asyncio.run(scenario())
