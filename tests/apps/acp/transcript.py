"""`python -m tests.apps.acp.transcript > docs/acp-transcript.md`: a run without a key, killed and brought back.

Ids, times and paths are replaced, so that every run gives the same page; a test compares it.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.apps.acp.client import HOLDS, Client, Frame, Schema, until
from tests.apps.command import Command, Stock, call

PAGE = Path(__file__).parents[3] / "docs/acp-transcript.md"

HEAD = """\
# An editor's session that was killed in the middle of a tool

What goes over the wire, and what the model reads afterwards. It is made by
`python -m tests.apps.acp.transcript > docs/acp-transcript.md`, and a test makes it anew and compares.
The model is a script, so no key is needed; its two answers are

{script}

`>` is said by the client, `<` by `fencepost acp`; `…` stands for what is left out, the pieces of one message are put
together, and ids, times and paths are made the same in every run. Every frame was held against the official schema.
"""


def run(root: Path) -> str:
    """Play it; gives the page."""
    cli = Command(root, Stock(root))
    answers = [call("shell", "I begin.", command=HOLDS), {"content": "I look at what it has done before I repeat it."}]
    cli.script(*answers)
    parts = [HEAD.format(script="\n".join(f"    {json.dumps(answer)}" for answer in answers))]
    client = Client(cli, Schema(), "--approve", "all")
    client.initialize()
    session = client.new(cli.work)
    client.ask(session, "send the mail")
    until((cli.work / "begun").exists)
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    client.kill()
    client.gone()
    parts += ["## Before\n", _frames(client), "Here the server is killed (`kill -9`), in the middle of the command.\n"]
    client = Client(cli, Schema(), "--approve", "all")
    client.initialize()
    client.call("session/resume", sessionId=session, cwd=str(cli.work), mcpServers=[])
    assert client.prompt(session, "go on") == "end_turn"
    assert client.close() == 0
    client.gone()
    (cli.work / "begun").unlink()
    parts += ["## After\n", "The client starts it again, and resumes.\n", _frames(client)]
    exported = cli.run("export", session, "--format", "openai")
    messages = json.loads(exported.out)
    parts += ["## What the model was sent with the second prompt\n", _messages(messages)]
    return _same("\n".join(parts), session, str(cli.work))


def _frames(client: Client) -> str:
    frames: list[tuple[str, Frame]] = []
    for side, frame in client.frames:
        if not (frames and _joined(frames[-1][1], frame)):
            frames.append((side, _short(frame)))
    lines = [f"{side} {json.dumps(frame, ensure_ascii=False)}" for side, frame in frames]
    return "\n".join(["```text", *lines, "```", ""])


def _joined(before: Frame, frame: Frame) -> bool:
    """Whether a piece of a message was put behind the one before it."""
    first, second = (one.get("params", {}).get("update", {}) for one in (before, frame))
    if second.get("sessionUpdate") != "agent_message_chunk" or first.get("messageId") != second.get("messageId"):
        return False
    first["content"]["text"] += second["content"]["text"]
    return True


def _short(frame: Frame) -> Frame:
    """A frame without what says nothing here."""
    kept: Frame = {key: value for key, value in copy.deepcopy(frame).items() if key != "jsonrpc"}
    for part in ("modes", "configOptions", "agentCapabilities"):
        if part in kept.get("result", {}):
            kept["result"] = {**kept["result"], part: "…"}
    return kept


def _messages(found: Any) -> str:
    messages = found["messages"] if isinstance(found, dict) else found
    said = [one for one in messages if one["role"] != "system"]
    asked = said[:-1] if said[-1]["role"] == "assistant" else said
    return "\n".join(["```json", *(json.dumps(one, ensure_ascii=False) for one in asked), "```", ""])


def _same(text: str, session: str, work: str) -> str:
    """The page without what differs from run to run."""
    text = text.replace(session, "SESSION").replace(work, "/home/ada/project")
    text = re.sub(r"\bc_[0-9a-z]{12}\b", "CALL", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00| UTC)?", "TIME", text)
    text = re.sub(r"process(es)? \d+(, \d+)*", "process PID", text)
    return re.sub(r'"version": "[^"]*"', '"version": "…"', text)


def main() -> None:
    """Print the page."""
    with tempfile.TemporaryDirectory() as root:
        print(run(Path(root)), end="")


if __name__ == "__main__":
    main()
