"""`fencepost.connect`: the runtime of another process, which may be killed at any moment."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import fencepost as fp
from fencepost.client.links import ProcessLink
from fencepost.core import events as ev
from fencepost.errors import ClosedError, FencepostError, HeldError, ServerLostError, SessionNotFoundError, UsageError
from fencepost.plugins.approval import Verdict
from tests.client.servers import SECONDS, TOKEN, Place, asks, until

HANGS = "echo begun > begun; exec sleep 600"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.script({"content": "Done."}, {"content": "Done again."})
    made.configure('[plugin.shell]\non_crash = "end"\n')
    return made


def connected(place: Place, **more: Any) -> fp.Client:
    """A client with a server of its own."""
    return fp.connect(
        "stdio:",
        store=place.store,
        model=place.model,
        cwd=place.work,
        environ=place.environ,
        **{"approve": "all"} | more,
    )


def kill(client: fp.Client) -> None:
    """End the client's own server with SIGKILL."""
    link = client._link
    assert isinstance(link, ProcessLink)
    os.kill(link._process.pid, signal.SIGKILL)


async def all_of(session: fp.RemoteSession, last: str) -> list[ev.Event]:
    """The events up to the first one of a type."""
    found: list[ev.Event] = []
    async for event in session.events():
        assert isinstance(event, ev.Event)
        found.append(event)
        if event.type_name() == last:
            break
    return found


def test_a_program_changes_one_line(place: Place) -> None:
    async def use(runtime: Any) -> str:
        async with runtime as opened:
            session = await opened.create(cwd=place.work)
            turn = await session.prompt("Go.")
            await session.close()
            row = (await opened.sessions())[0]
            assert row.session == session.id
            assert (await opened.inspect(session.id)).state == "clean"
            return str(turn.text)

    async def main() -> None:
        here = await use(fp.open(place.store, model=place.model))
        there = await use(connected(place))
        assert here == there

    asyncio.run(main())


@pytest.mark.parametrize(
    ("remote", "local"), [(fp.Client, fp.Runtime), (fp.RemoteSession, fp.Session)], ids=["runtime", "session"]
)
def test_what_the_remote_one_has_the_local_one_has_too(remote: type, local: type) -> None:
    for name in (
        "create",
        "resume",
        "fork",
        "sessions",
        "inspect",
        "prompt",
        "queue",
        "steer",
        "drop",
        "go_on",
        "cancel",
    ):
        theirs, ours = getattr(remote, name, None), getattr(local, name, None)
        assert (theirs is None) == (ours is None), name
        if theirs is not None and ours is not None:
            wanted = set(inspect.signature(theirs).parameters)
            assert wanted <= set(inspect.signature(ours).parameters), name


def test_killed_in_a_tool_the_turn_is_interrupted_and_the_call_unknown(place: Place) -> None:
    place.script(asks(HANGS), {"content": "I looked: it had begun."})

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            asked = asyncio.create_task(session.prompt("Go."))
            await until(place.work / "begun")
            kill(client)
            turn = await asked
            assert (turn.reason, turn.code) == ("interrupted", "SERVER_LOST")
            (call,) = session.recovery.calls
            assert (call.name, call.verdict) == ("shell", "outcome_unknown")
            assert call.call_id in turn.message
            assert session.recoveries == 1
            gone_on = await session.go_on()
            assert gone_on is not None
            assert (gone_on.reason, gone_on.text) == ("completed", "I looked: it had begun.")

    asyncio.run(main())


def test_a_reader_loses_nothing_and_gets_nothing_twice_when_the_server_is_killed(place: Place) -> None:
    place.script({"content": "One."}, {"content": "Two."}, {"content": "Three."})

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            seen: list[int] = []

            async def read() -> None:
                seen.extend([event.seq async for event in session.events()])

            reading = asyncio.create_task(read())
            texts = []
            for _ in range(3):
                texts.append((await session.prompt("Go.")).text)
                kill(client)
            assert texts == ["One.", "Two.", "Three."]
            inspection = await client.inspect(session.id)
            await session.close()
            await reading
            assert seen == list(range(len(seen)))
            assert len(seen) >= inspection.events

    asyncio.run(main())


def test_a_prompt_that_was_acknowledged_is_kept_when_the_server_is_killed(place: Place) -> None:
    place.script(asks(HANGS), {"content": "Both done."})

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            first = asyncio.create_task(session.prompt("Go."))
            await until(place.work / "begun")
            second = asyncio.create_task(session.prompt("Then this."))
            async for event in session.events():
                if isinstance(event, ev.InputQueued) and ev.text_of(event.content) == "Then this.":
                    break
            kill(client)
            assert (await first).reason == "interrupted"
            with pytest.raises(ClosedError, match="has not run"):
                await second
            turn = await session.go_on()
            assert turn is not None
            messages = [event async for event in _until_idle(session) if isinstance(event, ev.UserMessage)]
            assert [ev.text_of(message.content) for message in messages] == ["Go.", "Then this."]

    asyncio.run(main())


async def _until_idle(session: fp.RemoteSession) -> Any:
    ended = 0
    async for event in session.events():
        yield event
        ended += event.type_name() == "turn/end"
        if ended == 3:
            return


def test_a_turn_that_is_going_on_when_the_server_is_lost_is_not_asked_for_twice(place: Place) -> None:
    place.script(asks(HANGS), asks("echo more > more; exec sleep 600"))

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            first = asyncio.create_task(session.prompt("Go."))
            await until(place.work / "begun")
            kill(client)
            await first
            second = asyncio.create_task(session.go_on())
            await until(place.work / "more")
            kill(client)
            with pytest.raises(ServerLostError):
                await second
            assert [call.verdict for call in session.recovery.calls] == ["outcome_unknown"]

    asyncio.run(main())


def test_leaving_closes_the_running_turn_and_all_of_it_is_durable(place: Place) -> None:
    place.script(asks(HANGS))

    async def main() -> str:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            asked = asyncio.create_task(session.prompt("Go."))
            await until(place.work / "begun")
        assert (await asked).reason == "aborted"
        return session.id

    session = asyncio.run(main())

    async def look() -> None:
        async with fp.open(place.store) as runtime:
            found = await runtime.inspect(session)
            assert found.state == "clean"
            assert found.calls[0].verdict in {"outcome_unknown", "completed"}

    asyncio.run(look())


def test_events_arrive_while_the_turn_runs(place: Place) -> None:
    place.script(asks(HANGS))

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            asked = asyncio.create_task(session.prompt("Go."))
            found = await all_of(session, "tool/call")
            assert isinstance(found[-1], ev.ToolCall)
            await session.cancel()
            assert (await asked).reason == "aborted"

    asyncio.run(main())


def test_cancelling_a_prompt_cancels_its_turn(place: Place) -> None:
    place.script(asks(HANGS), {"content": "Fine."})

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            asked = asyncio.create_task(session.prompt("Go."))
            await until(place.work / "begun")
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            found = await all_of(session, "turn/end")
            assert isinstance(found[-1], ev.TurnEnd)
            assert found[-1].reason == "aborted"
            assert (await session.prompt("Again.")).text == "Fine."

    asyncio.run(main())


@pytest.mark.parametrize("allowed", [True, False])
def test_a_person_is_asked_here(place: Place, allowed: bool) -> None:
    place.script(asks("echo ran > ran"), {"content": "Done."})
    asked = []

    async def ask(question: Any) -> Verdict:
        asked.append(question)
        return Verdict(allowed=allowed, reason="not today")

    async def main() -> None:
        async with connected(place, approve="ask", ask=ask) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            await session.prompt("Go.")
            results = [event for event in await all_of(session, "turn/end") if isinstance(event, ev.ToolResult)]
            assert [result.code for result in results] == ["" if allowed else "DENIED"]

    asyncio.run(main())
    assert [question.tool for question in asked] == ["shell"]
    assert (place.work / "ran").exists() == allowed


def test_a_history_is_summed_up_there(place: Place) -> None:
    place.script(*({"content": word * 500} for word in ("One. ", "Two. ", "Three. ")), {"content": "A summary."})
    place.configure("[plugin.compaction]\nkeep = 1\n")

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            with pytest.raises(FencepostError):  # there is nothing to sum up yet
                await session.compact()
            for _ in range(3):
                await session.prompt("Go.")
            done = await session.compact()
            assert done.steps == 2
            found = await all_of(session, "context/summary")
            assert found[-1].through == done.through  # type: ignore[attr-defined]

    asyncio.run(main())


def test_notices_arrive(place: Place) -> None:
    place.script(asks("echo heard"), {"content": "Done."})

    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            heard: list[str] = []
            session.on_notice(lambda notice: heard.append(notice.text))
            await session.prompt("Go.")
            assert "heard" in "".join(heard)

    asyncio.run(main())


def test_errors_are_the_ones_of_the_same_program_in_one_process(place: Place) -> None:
    async def main() -> None:
        async with connected(place) as client, asyncio.timeout(SECONDS):
            with pytest.raises(SessionNotFoundError):
                await client.resume("none")
            session = await client.create(cwd=place.work)
            with pytest.raises(UsageError, match="empty"):
                await session.prompt(" ")
            await session.prompt("Go.")
            async with connected(place) as other:
                with pytest.raises(HeldError):
                    await other.resume(session.id)

    asyncio.run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://x"},
        {"url": "stdio:x"},
        {"url": "http://127.0.0.1:1", "store": "memory:"},
    ],
)
def test_what_is_no_server_is_said_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        fp.connect(wrong.pop("url"), token="x", **wrong)


def test_a_server_that_does_not_start_is_said(place: Place) -> None:
    async def main() -> None:
        with pytest.raises(ServerLostError):
            async with fp.connect("stdio:", store="nothing:here", model=place.model, environ=place.environ):
                pass

    asyncio.run(main())


# --- HTTP -------------------------------------------------------------------------------------------------------


def test_over_http_a_client_goes_on_when_the_server_was_killed_and_another_one_listens(place: Place) -> None:
    place.script(asks(HANGS), {"content": "Done."})

    async def main() -> None:
        with place.over_http("--approve", "all") as (server, url):
            async with fp.connect(url, token=TOKEN) as client, asyncio.timeout(SECONDS):
                session = await client.create(cwd=place.work)
                asked = asyncio.create_task(session.prompt("Go."))
                await until(place.work / "begun")
                server.kill()
                server.wait()
                with place.over_http("--approve", "all", address=url.removeprefix("http://")):
                    turn = await asked
                    assert (turn.reason, turn.code) == ("interrupted", "SERVER_LOST")
                    assert [call.verdict for call in session.recovery.calls] == ["outcome_unknown"]
                    found = await all_of(session, "turn/end")
                    assert [event.seq for event in found] == list(range(len(found)))
                    await session.close()

    asyncio.run(main())


def test_two_clients_share_a_session(place: Place) -> None:
    async def main() -> None:
        with place.over_http("--approve", "all") as (_, url):
            async with fp.connect(url, token=TOKEN) as one:
                session = await one.create(cwd=place.work)
                async with fp.connect(url, token=TOKEN) as two:
                    joined = await two.resume(session.id)
                    assert joined.recoveries == 0
                    assert (await joined.prompt("Go.")).text == "Done."
                assert (await session.prompt("More.")).text == "Done again."  # who joined left it as it was
                assert len(await all_of(session, "turn/end")) > 5

    asyncio.run(main())


def test_a_wrong_token_is_said(place: Place) -> None:
    async def main() -> None:
        with place.over_http() as (_, url), pytest.raises(UsageError, match="401"):
            async with fp.connect(url, token="wrong"):
                pass

    asyncio.run(main())
