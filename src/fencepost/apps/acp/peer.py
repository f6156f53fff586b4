"""The client, as the rest of the server sees it: told updates, and asked for what only it has."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from acp import schema
from acp.connection import Connection
from acp.exceptions import RequestError
from pydantic import BaseModel

from fencepost.apps.acp import cards, permission
from fencepost.apps.acp.framing import SENT, RequestId, StdioTransport
from fencepost.plugins.approval import Question, Verdict

CANCEL_REQUEST = "$/cancel_request"


def plain(model: BaseModel) -> dict[str, Any]:
    """A record of the SDK as it goes over the wire.

    That a file is new is said in words: there are clients which show no difference where `oldText` is left out.
    """
    data: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    parts = data.get("content")
    for part in parts if isinstance(parts, list) else ():
        if part["type"] == "diff":
            part.setdefault("oldText", None)
    return data


class Peer:
    """See the module.

    Args:
        connection: of the SDK.
        transport: under it. Updates go straight there: they are owed also when the client says nothing any more.

    Attributes:
        capabilities: what the client can do, once it said so.
    """

    def __init__(self, connection: Connection, transport: StdioTransport) -> None:
        self._connection = connection
        self._transport = transport
        self.capabilities = schema.ClientCapabilities()

    async def update(self, session: str, update: BaseModel) -> None:
        """Tell the client something about a session."""
        params = {"sessionId": session, "update": plain(update)}
        await self._transport.send({"jsonrpc": "2.0", "method": "session/update", "params": params})

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        """Ask the client. A question that nobody waits for any more is taken back.

        Raises:
            RequestError: the client answers with an error.
            ConnectionError: it is gone.
        """
        sent: list[RequestId] = []
        SENT.set(sent)
        try:
            return await self._connection.send_request(method, params)
        except asyncio.CancelledError:
            with contextlib.suppress(ConnectionError):
                for number in sent:
                    await self._connection.send_notification(CANCEL_REQUEST, {"requestId": number})
            raise
        finally:
            SENT.set(None)

    async def ask(self, question: Question, card: cards.Card) -> Verdict:
        """Ask the user about a call."""
        shown = plain(card)
        del shown["sessionUpdate"]
        options = [plain(option) for option in permission.options(question)]
        params = {"sessionId": question.session, "toolCall": shown, "options": options}
        try:
            return permission.verdict(question, await self._request("session/request_permission", params))
        except (RequestError, ConnectionError) as error:
            return permission.unasked(error)

    async def show(self, session: str, place: Path) -> str | None:
        """The client's text of a file; None where it has nothing to say."""
        try:
            answer = await self._request("fs/read_text_file", {"sessionId": session, "path": str(place)})
        except (RequestError, ConnectionError):
            return None
        text = answer.get("content") if isinstance(answer, dict) else None
        return text if isinstance(text, str) else None

    @property
    def shows_files(self) -> bool:
        """Whether the client can be asked for the text of a file."""
        files = self.capabilities.fs
        return bool(files is not None and files.read_text_file)
