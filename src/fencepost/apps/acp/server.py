"""The methods of the protocol, version 1: which request is whose, and what the client is answered when it fails.

    initialize · authenticate · session/new · load · resume · fork · list · delete · close
    session/prompt · session/cancel · session/set_mode · session/set_config_option · $/cancel_request

The SDK's own router is not used: it takes what a client puts into `_meta` for parameters, and knows neither
`session/delete` nor `$/cancel_request`. `session/fork` is not part of the stable protocol yet, and is offered as its
draft has it. There is nothing to log in to, so nothing to log out of.

Rules:
    1. Parameters are checked by the SDK's models. `_meta` is the client's own.
    2. No error reaches the client without a code; see `failures`.
    3. A request that the client takes back ends: a prompt as `cancelled`, another with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from acp import schema
from acp.connection import Connection
from acp.exceptions import RequestError
from pydantic import BaseModel, ValidationError

from fencepost import __version__
from fencepost.apps.acp import failures
from fencepost.apps.acp.framing import REQUEST, RequestId, StdioTransport
from fencepost.apps.acp.house import House
from fencepost.apps.acp.peer import CANCEL_REQUEST, Peer, plain
from fencepost.apps.acp.sessions import Sessions
from fencepost.errors import FencepostError, UsageError

Method: TypeAlias = Callable[[Any], Awaitable[BaseModel]]

LAST_WORDS = 1.0
"""Seconds in which requests whose sessions are closed have to be answered."""


class Server:
    """One connection.

    Args:
        house: what is in force where.
        transport: to the client.
    """

    def __init__(self, house: House, transport: StdioTransport) -> None:
        self._house = house
        self._connection = Connection(self._handle, transport, listening=False)
        self._peer = Peer(self._connection, transport)
        self._sessions = Sessions(house, self._peer)
        self._answering: dict[RequestId, asyncio.Task[Any]] = {}
        self._prompting: dict[RequestId, str] = {}
        self._taken_back: set[RequestId] = set()
        sessions = self._sessions
        self._methods: dict[str, tuple[type[BaseModel], Method]] = {
            "initialize": (schema.InitializeRequest, self._initialize),
            "authenticate": (schema.AuthenticateRequest, self._authenticate),
            "session/new": (schema.NewSessionRequest, sessions.new),
            "session/load": (schema.LoadSessionRequest, sessions.load),
            "session/resume": (schema.ResumeSessionRequest, sessions.resume),
            "session/fork": (schema.ForkSessionRequest, sessions.fork),
            "session/list": (schema.ListSessionsRequest, sessions.listed),
            "session/delete": (schema.DeleteSessionRequest, sessions.delete),
            "session/close": (schema.CloseSessionRequest, sessions.close_one),
            "session/prompt": (schema.PromptRequest, sessions.prompt),
            "session/set_mode": (schema.SetSessionModeRequest, sessions.set_mode),
            "session/set_config_option": (schema.SetSessionConfigOptionSelectRequest, sessions.set_option),
        }

    async def listen(self) -> None:
        """Answer until the client says nothing any more."""
        await self._connection.main_loop()

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer a request, or hear a notification.

        Raises:
            RequestError: what the client is answered.
        """
        if is_notification:
            self._hear(method, params)
            return None
        if method not in self._methods:
            raise RequestError.method_not_found(method)
        number, task = REQUEST.get(), asyncio.current_task()
        assert task is not None
        self._answering[number] = task
        try:
            return await self._answer(method, params, number)
        except asyncio.CancelledError:
            if number not in self._taken_back:
                raise
            raise failures.cancelled() from None
        except ValidationError as error:
            raise failures.invalid(error) from None
        except FencepostError as error:
            raise failures.refusal(error) from None
        except Exception as error:  # noqa: BLE001 - the edge: the client is owed an answer whatever happened
            raise failures.fault(method, error) from None
        finally:
            self._forget(number)

    async def _answer(self, method: str, params: Any, number: RequestId) -> dict[str, Any]:
        model, known = self._methods[method]
        request = model.model_validate({} if params is None else params)
        if isinstance(request, schema.PromptRequest):
            self._prompting[number] = request.session_id
        return plain(await known(request))

    def _forget(self, number: RequestId) -> None:
        self._answering.pop(number, None)
        self._prompting.pop(number, None)
        self._taken_back.discard(number)

    def _hear(self, method: str, params: Any) -> None:
        """A notification. One that is not known, or makes no sense, is nobody's business."""
        try:
            if method == "session/cancel":
                self._sessions.cancel(schema.CancelNotification.model_validate(params).session_id)
            elif method == CANCEL_REQUEST:
                self._take_back(schema.CancelRequestNotification.model_validate(params).request_id)
        except ValidationError:
            return

    def _take_back(self, number: RequestId) -> None:
        if number in self._prompting:
            self._sessions.cancel(self._prompting[number])
        elif number in self._answering:
            self._taken_back.add(number)
            self._answering[number].cancel()

    async def _initialize(self, request: schema.InitializeRequest) -> BaseModel:
        self._peer.capabilities = request.client_capabilities or schema.ClientCapabilities()
        offered = schema.SessionCapabilities(
            list=schema.SessionListCapabilities(),
            delete=schema.SessionDeleteCapabilities(),
            fork=schema.SessionForkCapabilities(),
            resume=schema.SessionResumeCapabilities(),
            close=schema.SessionCloseCapabilities(),
        )
        return schema.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True),
                session_capabilities=offered,
            ),
            agent_info=schema.Implementation(name="fencepost", title="fencepost", version=__version__),
            auth_methods=[],
        )

    async def _authenticate(self, request: schema.AuthenticateRequest) -> BaseModel:
        raise UsageError(f"there is no way to authenticate called {request.method_id!r}, and no need to")

    async def close(self) -> list[Exception]:
        """Close in order: sessions, what is owed to the client, stores, the connection; returns what failed."""
        failed = await self._sessions.close()
        if self._answering:
            await asyncio.wait(self._answering.values(), timeout=LAST_WORDS)
        failed += await self._sessions.close()  # what was being opened meanwhile
        failed += await self._house.close()
        await self._connection.close()
        return failed
