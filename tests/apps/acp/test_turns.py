"""A prompt's turn as a client sees it: what is told, in which order, and how it ends."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from tests.apps.acp.client import HOLDS, Client, Schema, allow, chosen, writes
from tests.apps.acp.conftest import Connect
from tests.apps.command import Command, call


def kinds(updates: list[dict[str, Any]]) -> list[str]:
    """The kinds of updates, runs of one kind as one."""
    found: list[str] = []
    for one in updates:
        if not found or found[-1] != one["sessionUpdate"]:
            found.append(one["sessionUpdate"])
    return found


def test_a_turn_is_told_in_order_and_answered_behind_it(cli: Command, connect: Connect) -> None:
    cli.script(
        {**call("shell", "I look.", command="echo one"), "reasoning_content": "Where am I?"}, {"content": "It is one."}
    )
    client = connect("--approve", "all")
    session = client.new(cli.work)
    assert client.prompt(session, "look around") == "end_turn"
    updates = client.updates(session)
    assert kinds(updates) == [
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
        "session_info_update",
    ]
    thought = client.updates(session, "agent_thought_chunk")
    assert "".join(one["content"]["text"] for one in thought) == "Where am I?"
    assert client.said(session) == "I look.It is one."
    names = {one["messageId"] for one in client.updates(session, "agent_message_chunk")}
    assert len(names) == 2, "two answers"
    (announced,) = client.updates(session, "tool_call")
    assert (announced["name"], announced["title"], announced["kind"]) == ("shell", "echo one", "execute")
    assert (announced["status"], announced["rawInput"]) == ("pending", {"command": "echo one"})
    steps = client.updates(session, "tool_call_update")
    assert steps[0]["status"] == "in_progress"
    assert (steps[-1]["status"], steps[-1]["content"][0]["content"]["text"]) == ("completed", "one\n")
    assert updates[-1]["title"] == "look around"
    last = client.frames[-1][1]
    assert last["result"]["stopReason"] == "end_turn", "the answer is the last thing that is said"
    assert client.close() == 0
    assert cli.events(session)[-1]["type"] == "turn/end"


def test_what_was_told_was_durable(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", "I look.", command=HOLDS))
    client = connect("--approve", "all")
    session = client.new(cli.work)
    client.ask(session, "look around")
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    client.kill()
    told = {one["toolCallId"] for one in client.updates(session, "tool_call_update")}
    stored = {event["call_id"] for event in cli.events(session) if event["type"] == "tool/call"}
    assert told == stored
    assert client.said(session) == "I look."


def test_output_streams_while_a_command_runs(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", command="echo first; until test -e go; do sleep 0.05; done; echo second"), "Done.")
    client = connect("--approve", "all")
    session = client.new(cli.work)
    number = client.ask(session, "wait")

    def first() -> list[Any]:
        steps = client.updates(session, "tool_call_update")
        return [one for one in steps if one["status"] == "in_progress" and "first" in str(one.get("content"))]

    client.until(first)
    (cli.work / "go").touch()
    assert client.result(number)["stopReason"] == "end_turn"
    last = client.updates(session, "tool_call_update")[-1]
    assert (last["status"], last["content"][0]["content"]["text"]) == ("completed", "first\nsecond\n")
    assert client.close() == 0


def test_changes_of_files_are_shown_as_differences(cli: Command, connect: Connect) -> None:
    (cli.work / "old.txt").write_text("before\n")
    cli.script(
        {
            "tool_calls": [
                {"function": {"name": "write_file", "arguments": {"path": "new.txt", "content": "fresh\n"}}},
                {"function": {"name": "write_file", "arguments": {"path": "old.txt", "content": "after\n"}}},
                {"function": {"name": "edit_file", "arguments": {"path": "old.txt", "old": "after", "new": "later"}}},
                {"function": {"name": "edit_file", "arguments": {"path": "old.txt", "old": "nowhere", "new": "x"}}},
            ]
        },
        {"content": "Done."},
    )
    client = connect("--approve", "all")
    session = client.new(cli.work)
    assert client.prompt(session, "change files") == "end_turn"
    cards = client.updates(session, "tool_call")
    assert [one["kind"] for one in cards] == ["edit"] * 4
    assert [one["locations"][0]["path"] for one in cards] == [
        str(cli.work / name) for name in ("new.txt", "old.txt", "old.txt", "old.txt")
    ]
    ends = [one for one in client.updates(session, "tool_call_update") if one["status"] in {"completed", "failed"}]
    path = str(cli.work / "old.txt")
    assert ends[0]["content"][0] == {
        "type": "diff",
        "path": str(cli.work / "new.txt"),
        "oldText": None,
        "newText": "fresh\n",
    }
    assert ends[1]["content"][0] == {"type": "diff", "path": path, "oldText": "before\n", "newText": "after\n"}
    assert ends[2]["content"][0] == {"type": "diff", "path": path, "oldText": "after", "newText": "later"}
    assert ends[3]["status"] == "failed"
    assert [part["type"] for part in ends[3]["content"]] == ["content"], "what did not happen is no difference"
    assert client.close() == 0


def test_a_person_is_asked_behind_the_call_and_before_it_runs(cli: Command, connect: Connect) -> None:
    cli.script(writes("a.txt", "x"), {"content": "Done."})
    client = connect()
    session = client.new(cli.work)
    number = client.ask(session, "write")
    (question,) = client.until(lambda: client.heard("session/request_permission"))
    shown = question["params"]["toolCall"]
    assert (shown["kind"], shown["status"], shown["rawInput"]) == ("edit", "pending", {"path": "a.txt", "content": "x"})
    assert shown["content"] == [{"type": "diff", "path": str(cli.work / "a.txt"), "oldText": None, "newText": "x"}]
    assert not (cli.work / "a.txt").exists()
    announced = [frame for _, frame in client.frames if frame.get("method") in {"session/update", question["method"]}]
    assert announced[-2]["params"]["update"]["toolCallId"] == shown["toolCallId"], "told of it first"
    asked = [event["type"] for event in cli.events(session)]
    assert "approval/asked" in asked
    assert "tool/call" not in asked
    result = allow(question["params"])
    client.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
    assert client.result(number)["stopReason"] == "end_turn"
    assert (cli.work / "a.txt").read_text() == "x"
    assert client.close() == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"outcome": {"outcome": "selected", "optionId": "reject-once"}}, "user said no"),
        ({"outcome": {"outcome": "selected", "optionId": "allow"}}, "not offered"),
        ({"outcome": {"outcome": "cancelled"}}, "cancelled before there was an answer"),
        ({"outcome": "yes"}, "could not be understood"),
    ],
)
def test_what_is_no_clear_yes_is_a_no(cli: Command, connect: Connect, answer: dict[str, Any], why: str) -> None:
    cli.script(writes("a.txt", "x"), {"content": "Then not."})
    client = connect(checked=False)
    client.answers["session/request_permission"] = lambda _: answer
    session = client.new(cli.work)
    assert client.prompt(session, "write") == "end_turn"
    end = client.updates(session, "tool_call_update")[-1]
    assert (end["status"], end["_meta"]["fencepost"]["verdict"]) == ("failed", "not_started")
    assert why in end["content"][0]["content"]["text"]
    assert not (cli.work / "a.txt").exists()
    assert client.close() == 0


def test_always_is_not_asked_again_in_this_session_and_in_no_other(cli: Command, connect: Connect) -> None:
    write = writes("a.txt", "x")
    cli.script(write, write, {"content": "Done."})
    client = connect()
    client.answers["session/request_permission"] = lambda params: chosen(params, "allow_always")
    session, other = client.new(cli.work), client.new(cli.work)
    assert client.prompt(session, "write twice") == "end_turn"
    assert len(client.heard("session/request_permission")) == 1
    assert client.prompt(other, "write twice") == "end_turn"
    assert [one["params"]["sessionId"] for one in client.heard("session/request_permission")] == [session, other]
    assert client.close() == 0


def test_a_mode_decides_from_the_next_call_on(cli: Command, connect: Connect) -> None:
    write = writes("a.txt", "x")
    cli.script(write, {"content": "Denied."}, write, {"content": "Done."})
    client = connect()
    made = client.call("session/new", cwd=str(cli.work), mcpServers=[])
    session = made["sessionId"]
    assert made["modes"]["currentModeId"] == made["configOptions"][0]["currentValue"] == "ask"
    assert client.call("session/set_mode", sessionId=session, modeId="read") == {}
    (told,) = client.updates(session, "config_option_update")
    assert told["configOptions"][0]["currentValue"] == "read"
    assert client.prompt(session, "write") == "end_turn"
    assert not (cli.work / "a.txt").exists()
    options = client.call("session/set_config_option", sessionId=session, configId="mode", value="all")
    assert options["configOptions"][0]["currentValue"] == "all"
    assert client.updates(session, "current_mode_update")[0]["currentModeId"] == "all"
    assert client.prompt(session, "write") == "end_turn"
    assert (cli.work / "a.txt").exists()
    assert client.heard("session/request_permission") == []
    assert client.refused("session/set_mode", sessionId=session, modeId="yolo")["data"]["code"] == "USAGE"
    assert client.close() == 0


def test_a_plan_is_shown_as_one(cli: Command, connect: Connect) -> None:
    entries = [{"content": "Look", "status": "completed"}, {"content": "Act", "priority": "high"}]
    cli.script(call("update_plan", entries=entries), {"content": "That is the plan."})
    client = connect("--approve", "read")
    session = client.new(cli.work)
    assert client.prompt(session, "plan") == "end_turn"
    (plan,) = client.updates(session, "plan")
    assert plan["entries"] == [
        {"content": "Look", "priority": "medium", "status": "completed"},
        {"content": "Act", "priority": "high", "status": "pending"},
    ]
    assert client.updates(session, "tool_call", "tool_call_update") == []
    assert client.close() == 0


def test_several_sessions_work_side_by_side(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", command="touch $FENCEPOST_SESSION_ID; until test -e go; do sleep 0.05; done"), "Done.")
    client = connect("--approve", "all")
    sessions = [client.new(cli.work), client.new(cli.work)]
    numbers = [client.ask(session, "wait") for session in sessions]
    for session in sessions:
        client.until(lambda name=session: [one for one in client.updates(name) if one.get("status") == "in_progress"])
    (cli.work / "go").touch()
    assert [client.result(number)["stopReason"] for number in numbers] == ["end_turn", "end_turn"]
    assert [client.said(session) for session in sessions] == ["Done.", "Done."]
    assert client.close() == 0


def test_prompts_that_come_meanwhile_run_in_their_order(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", command="until test -e go; do sleep 0.05; done"), "One.", "Two.")
    client = connect("--approve", "all")
    session = client.new(cli.work)
    first, second = client.ask(session, "first"), client.ask(session, "second")
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    (cli.work / "go").touch()
    assert client.result(second)["stopReason"] == "end_turn"
    assert client.result(first)["stopReason"] == "end_turn"
    said = [event["content"][0]["text"] for event in cli.events(session) if event["type"] == "user/message"]
    assert said == ["first", "second"]
    assert client.close() == 0


def test_content_that_is_no_text_is_refused_and_the_rest_becomes_text(cli: Command, connect: Connect) -> None:
    cli.script({"content": "Seen."})
    client = connect()
    session = client.new(cli.work)
    image = [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    assert client.refused("session/prompt", sessionId=session, prompt=image)["code"] == -32602
    blocks = [
        {"type": "text", "text": "Compare "},
        {"type": "resource_link", "name": "a.py", "uri": "file:///w/a.py"},
        {"type": "resource", "resource": {"uri": "file:///w/b.py", "text": "b = 1"}},
    ]
    number = client.request("session/prompt", sessionId=session, prompt=blocks, _meta={"sessionId": "x", "prompt": []})
    assert client.result(number)["stopReason"] == "end_turn"
    (queued,) = [event for event in cli.events(session) if event["type"] == "input/queued"]
    text = 'Compare [a.py](file:///w/a.py)\n<resource uri="file:///w/b.py">\nb = 1\n</resource>\n'
    assert queued["content"][0]["text"] == text
    assert client.close() == 0


def test_a_prompt_that_cannot_be_saved_is_refused_and_nothing_of_it_is_told(cli: Command, schema: Schema) -> None:
    cli.script({"content": "Never said."})

    def no_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    client = Client(cli, schema, preexec_fn=no_files)
    client.initialize()
    session = client.new(cli.work)
    refused = client.response(client.ask(session, "do it"))["error"]
    assert (refused["code"], refused["data"]["code"]) == (-32010, "NOT_SAVED")
    assert refused["data"]["next"]
    assert "Never said." not in client.said(session)
    client.kill()
    client.gone()


def test_a_turn_that_fails_is_an_error_with_its_code(cli: Command, connect: Connect) -> None:
    cli.script(call("list_files"))
    client = connect()
    session = client.new(cli.work)
    refused = client.response(client.ask(session, "do it"))["error"]
    assert (refused["code"], refused["data"]["code"]) == (-32010, "SCRIPT_EXHAUSTED")
    assert cli.events(session)[-1]["type"] == "turn/end", "told behind its closing records"
    cli.script(call("list_files"), {"content": "cut", "finish_reason": "length"})
    other = client.new(cli.work)
    assert client.prompt(other, "do it") == "max_tokens"
    assert client.close() == 0
