"""Looking: five states, verdicts that repair will write, and one broken neighbour that hides nobody."""

import pytest
from tests.journal.test_session import damaged, files, later, put, unknown_event
from tests.runtime.rig import run
from tests.stores.sample import call, header, log_bytes, turn_with_call

from fencepost.core import events as ev
from fencepost.core.codec import CORE, Vocabulary
from fencepost.errors import PermissionDeniedError, SessionNotFoundError
from fencepost.journal.inspect import examine, fold_stored, inspect, rows, title_of
from fencepost.journal.session import Journal
from fencepost.stores.base import Damage, Owner, StoredLog
from fencepost.stores.jsonl import JsonlStore

T = 1_700_000_000_000


def answered():
    """A closed turn with one call that completed."""
    entries = [*turn_with_call(), call(5)]
    return [
        *entries,
        ev.ToolResult(6, T, 1, 1, "call-1", (ev.Text("sent"),)),
        ev.StepEnd(7, T, 1, 1),
        ev.TurnEnd(8, T, 1, "completed"),
    ]


def look(root, session="s1", vocabulary=CORE):
    return run(lambda: inspect(JsonlStore(root), session, vocabulary))


# --- states -----------------------------------------------------------------------------------------------------


def test_clean(tmp_path):
    put(tmp_path, log_bytes(answered()))
    seen = look(tmp_path)
    assert (seen.session, seen.state, seen.events, seen.watermark, seen.tail_bytes) == ("s1", "clean", 9, 8, 0)
    assert (seen.gates, seen.owner, seen.problem, seen.pending_inputs) == (("step", "request", "tool"), None, None, ())
    (one,) = seen.calls
    assert (one.call_id, one.name, one.arguments, one.turn, one.step) == ("call-1", "send_mail", {"to": "ada"}, 1, 1)
    assert (one.effect, one.verdict, one.code) == ("write", "completed", "")


@pytest.mark.parametrize(
    ("entries", "verdict", "code"),
    [
        (turn_with_call(), "not_started", "TOOL_NOT_STARTED"),
        ([*turn_with_call(), call(5)], "outcome_unknown", "TOOL_OUTCOME_UNKNOWN"),
        (answered()[:7], "completed", ""),
    ],
)
def test_interrupted(entries, verdict, code, tmp_path):
    put(tmp_path, log_bytes(entries))
    seen = look(tmp_path)
    assert seen.state == "interrupted"
    assert [(one.verdict, one.code) for one in seen.calls] == [(verdict, code)]


def test_without_a_tool_gate_a_missing_call_proves_nothing(tmp_path):
    entries = turn_with_call()
    entries[1] = ev.TurnStart(1, T, 1, ("closing",), "none")
    put(tmp_path, log_bytes(entries))
    seen = look(tmp_path)
    assert seen.gates == ("closing",)
    assert [one.verdict for one in seen.calls] == ["outcome_unknown"]


def test_running_gives_no_verdict_on_a_call_without_a_result(tmp_path):
    async def scenario():
        put(tmp_path, log_bytes(answered()))
        journal, _ = await Journal.resume(JsonlStore(tmp_path), "s1", later(), CORE)
        for event in turn_with_call(call_id="call-2")[1:]:
            fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in {"seq", "time"}}
            journal.append(type(event), **{**fields, **({"turn": 2} if "turn" in fields else {})})
        await journal.flush()
        seen = await inspect(JsonlStore(tmp_path), "s1")
        assert seen.state == "running"
        assert seen.owner is not None
        assert [(one.call_id, one.verdict, one.code) for one in seen.calls] == [
            ("call-1", "completed", ""),
            ("call-2", "running", ""),
        ]
        await journal.close()

    run(scenario)


@pytest.mark.parametrize("state", ["damaged", "unsupported"])
def test_no_verdict_while_an_owner_lives_whatever_the_state(state):
    """Law 8: the one who reads may lack a plugin, or see damage; the owner may be in that very call all the same."""

    class Strange(ev.Event, frozen=True, tag="strange/thing"):
        pass

    entries = [*turn_with_call(), call(5)]
    stored = StoredLog(
        session="s1",
        header=header(),
        entries=entries if state == "damaged" else [*entries, ev.UnknownEvent(6, T, "strange/thing", b"{}", False)],
        damage=(Damage(10, "checksum"),) if state == "damaged" else (),
        owner=Owner(7, "host", 0),
    )
    seen = examine(fold_stored(stored))
    assert seen.state == state
    assert [one.verdict for one in seen.calls] == ["running"]


def test_unsupported_is_shown_and_changes_with_the_vocabulary(tmp_path):
    class Strange(ev.Event, frozen=True, tag="strange/thing"):
        pass

    put(tmp_path, unknown_event())
    seen = look(tmp_path)
    assert (seen.state, seen.events) == ("unsupported", 6)
    assert "'strange/thing' (seq 5)" in seen.problem
    assert look(tmp_path, vocabulary=Vocabulary([Strange])).state == "interrupted"


def test_a_declared_event_that_is_not_whole_is_damage(tmp_path):
    class Strange(ev.Event, frozen=True, tag="strange/thing"):
        sky: str

    put(tmp_path, unknown_event())
    seen = look(tmp_path, vocabulary=Vocabulary([Strange]))
    assert seen.state == "damaged"
    assert "sky" in seen.problem


def test_damaged_says_where(tmp_path):
    put(tmp_path, damaged())
    seen = look(tmp_path)
    assert seen.state == "damaged"
    assert seen.problem.startswith("at byte ")


# --- what lies beyond damage ------------------------------------------------------------------------------------


def read_with(entries, beyond):
    return examine(
        fold_stored(
            StoredLog(session="s1", header=header(), entries=entries, beyond=beyond, damage=(Damage(10, "checksum"),))
        )
    )


def test_a_call_beyond_damage_is_never_not_started():
    """What is there beyond damage is a fact; what is not there proves nothing."""
    before, (answer, admitted) = turn_with_call()[:2], [turn_with_call()[4], call(5)]
    result = answered()[6]
    assert [one.verdict for one in read_with(before, [answer]).calls] == ["outcome_unknown"]
    assert [one.verdict for one in read_with(before, [admitted]).calls] == ["outcome_unknown"]
    (one,) = read_with(before, [answer, admitted, result]).calls
    assert (one.name, one.verdict, one.effect) == ("send_mail", "completed", "write")
    (alone,) = read_with(before, [result]).calls
    assert (alone.call_id, alone.name, alone.verdict) == ("call-1", "", "completed")


def test_a_call_before_damage_is_completed_by_what_lies_beyond(tmp_path):
    entries, result = turn_with_call(), answered()[6]
    stored = StoredLog(
        session="s1",
        header=header(),
        entries=entries,
        beyond=[call(5), result],
        damage=(Damage(10, "checksum"),),
    )
    reading = fold_stored(stored)
    assert [one.verdict for one in examine(reading).calls] == ["completed"]
    assert reading.fold.calls["call-1"].result is None, "the fold is over the intact prefix"


def test_an_event_that_may_not_stand_there_is_damage_and_blinds():
    entries = [*turn_with_call(), ev.TurnStart(5, T, 7, (), "p"), ev.TurnEnd(6, T, 7, "completed")]
    seen = examine(fold_stored(StoredLog(session="s1", header=header(), entries=entries)))
    assert seen.state == "damaged"
    assert "turn/start may not follow in state answered" in seen.problem
    assert [one.verdict for one in seen.calls] == ["outcome_unknown"]


def test_damage_in_a_real_file_makes_the_calls_before_it_unknown(tmp_path):
    first, second, third = turn_with_call(), [call(5)], answered()[6:]
    content = bytearray(log_bytes(first, second, third))
    content[content.index(b'"tool/call"') + 3] = 0
    put(tmp_path, bytes(content))
    before = files(tmp_path)
    seen = look(tmp_path)
    assert seen.state == "damaged"
    assert [one.verdict for one in seen.calls] == ["completed"], "its result lies beyond, whole"
    content = bytearray(log_bytes(first, second))
    content[content.index(b'"tool/call"') + 3] = 0
    put(tmp_path, bytes(content), "s2")
    assert [one.verdict for one in look(tmp_path, "s2").calls] == ["outcome_unknown"]
    assert {path: data for path, data in files(tmp_path).items() if "s2" not in str(path)} == before


# --- more than calls --------------------------------------------------------------------------------------------


def test_arguments_that_are_no_json_are_shown_as_they_are(tmp_path):
    entries = turn_with_call()
    entries[4] = ev.AssistantMessage(
        4, T, 1, 1, "m", (ev.CallRequest("a", "f", "{not"), ev.CallRequest("b", "f", "")), "tool_calls"
    )
    put(tmp_path, log_bytes(entries))
    assert [one.arguments for one in look(tmp_path).calls] == ["{not", {}]


def test_the_effect_of_a_call_that_was_never_admitted_is_the_declared_one(tmp_path):
    entries = turn_with_call()
    spec = ev.ToolSpec("send_mail", "Send.", {}, "idempotent")
    entries[3] = ev.RequestHeader(3, T, "p", "m", {}, "", (spec,), "initial")
    put(tmp_path, log_bytes(entries))
    assert [one.effect for one in look(tmp_path).calls] == ["idempotent"]


def test_pending_inputs_are_told(tmp_path):
    entries = [
        ev.SessionOwner(0, T, "o", 1, resumed=False),
        ev.InputQueued(1, T, "i1", "turn", (ev.Text("first"), ev.Text(" line"))),
        ev.InputQueued(2, T, "i2", "step", (ev.Text("second"),)),
        ev.InputDropped(3, T, "i2", "no"),
    ]
    put(tmp_path, log_bytes(entries))
    seen = look(tmp_path)
    assert [(one.input_id, one.text) for one in seen.pending_inputs] == [("i1", "first line")]
    assert seen.state == "clean"


def test_titles_are_one_short_line():
    queued = [ev.InputQueued(0, T, "i", "turn", (ev.Text(f"  two\nlines {'x' * 100}"),))]
    title = title_of(queued)
    assert title.startswith("two lines xxx")
    assert len(title) == 72
    assert title.endswith("\u2026")
    assert title_of([]) == ""


# --- listing ----------------------------------------------------------------------------------------------------


def test_one_broken_neighbour_hides_nobody(tmp_path):
    put(tmp_path, log_bytes(answered()), "clean")
    put(tmp_path, log_bytes([*turn_with_call(), call(5)]), "interrupted")
    put(tmp_path, damaged(), "damaged")
    put(tmp_path, unknown_event(), "unsupported")
    put(tmp_path, b"", "empty")
    put(tmp_path, b"\0" * 4096, "zeros")
    put(tmp_path, b'{"type":"session","session":"torn', "torn")
    (tmp_path / "a file").write_text("not a session")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "log.jsonl").mkdir()
    before = files(tmp_path)
    listed = {row.session: row for row in run(lambda: rows(JsonlStore(tmp_path)))}
    assert {name: row.state for name, row in listed.items() if name != "directory"} == {
        "clean": "clean",
        "interrupted": "interrupted",
        "damaged": "damaged",
        "unsupported": "unsupported",
        "empty": "damaged",
        "zeros": "damaged",
        "torn": "damaged",
    }
    assert (listed["clean"].turns, listed["clean"].unknown) == (1, 0)
    assert (listed["interrupted"].unknown, listed["interrupted"].created) == (1, T)
    assert (listed["empty"].created, listed["empty"].title) == (None, "")
    assert files(tmp_path) == before, "law 7"


class Odd:
    """A store with sessions that cannot be read."""

    async def sessions(self):
        return ["gone", "locked", "fine"]

    async def read(self, session):
        if session == "gone":
            raise SessionNotFoundError("gone since it was listed")
        if session == "locked":
            raise PermissionDeniedError("no access")
        return StoredLog(session=session, header=header(session), entries=answered(), updated=7)


def test_a_session_that_cannot_be_read_is_a_marked_row_and_one_that_is_gone_is_none():
    async def scenario():
        listed = await rows(Odd())
        assert [(row.session, row.state) for row in listed] == [("fine", "clean"), ("locked", "damaged")]
        assert "no access" in listed[1].title

    run(scenario)
