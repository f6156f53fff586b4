"""One request, sent at most once, and what came back, bounded. Knows whether anything may have left this machine.

Rules:
    1. One call, one request: nothing is sent again, no redirect is followed, no connection is used twice. Only while
       nothing has left is the next address tried.
    2. The addresses that were judged are those that are connected to; the name is for `Host` and TLS. No proxy of the
       environment stands between.
    3. `left` is set before the first byte is handed to the system, and never unset.
    4. An answer whose status was read counts, however its body ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.plugins.http_address import Address, Target
from fencepost.runtime.aside import in_thread
from fencepost.runtime.replies import NotStarted, sentence

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 10.0
"""For each address."""
ANSWER_BYTES = 65_536
"""Bytes of an answer's body that are read at most."""


class Request(msgspec.Struct, frozen=True):
    """What is to be sent."""

    method: str
    target: Target
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """What came back.

    Attributes:
        status, reason, version: of the status line.
        headers: names in lower case, in their order.
        data: the body as it was sent, as far as it was read.
        broken: why the body is not whole, as half a sentence; empty where it is, or was cut by us.
        cut: whether there was more than is read.
    """

    status: int
    reason: str
    version: str
    headers: tuple[tuple[str, str], ...]
    data: bytes
    broken: str = ""
    cut: bool = False


class Lost(Exception):  # noqa: N818 - an answer on its way out, not a fault
    """There is no answer, and the request may have arrived. The text is the cause, as half a sentence."""


class Exchange:
    """One exchange.

    Args:
        request: what is to be sent.
        limit: seconds for all of it.
        may_connect: says why an address is not to be connected to; None if it may.

    Attributes:
        left: whether anything may have left this machine.
    """

    def __init__(self, request: Request, limit: float, may_connect: Callable[[Address], str | None]) -> None:
        self._request = request
        self._limit = limit
        self._may_connect = may_connect
        self._answer: Answer | None = None
        self.left = False

    async def run(self) -> Answer:
        """Send the request and read the answer.

        Raises:
            NotStarted: nothing left.
            Forbidden: an address is not to be connected to; nothing left.
            Lost: there is no answer.
        """
        try:
            async with asyncio.timeout(self._limit):
                return await self._reached(await self._addresses())
        except TimeoutError:
            return self._ended(f"its time limit of {self._limit:g} s ran out")
        except (NotStarted, Forbidden):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the library raises: only `left` decides what is claimed
            return self._ended(_cause(error))

    def _ended(self, why: str) -> Answer:
        """What is known where the exchange did not come to its end."""
        if self._answer is not None:
            return msgspec.structs.replace(self._answer, broken=why)
        if self.left:
            raise Lost(f"{why}, after the request had left")
        raise NotStarted(f"{self._request.target.origin} was not reached: {why}")

    # --- connecting ---------------------------------------------------------------------------------------------

    async def _addresses(self) -> list[Address]:
        target = self._request.target
        if target.address is not None:
            found = [target.address]
        else:
            try:
                look = partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
                rows = await in_thread(f"resolve {target.host}", look)
            except OSError as error:
                raise NotStarted(f"the name {target.host} leads nowhere ({error.strerror or error})") from None
            found = list(dict.fromkeys(ipaddress.ip_address(str(row[4][0]).partition("%")[0]) for row in rows))
        for address in found:
            why = self._may_connect(address)
            if why is not None:
                raise Forbidden(why)
        return found

    async def _reached(self, addresses: list[Address]) -> Answer:
        httpx, context = await in_thread(
            "load httpx2", partial(_library, secure=self._request.target.scheme == "https")
        )
        failures = []
        for address in addresses:
            try:
                return await self._sent(httpx, context, address)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if self.left:
                    raise
                failures.append(f"{address}: {_cause(error)}")
        raise NotStarted(f"{self._request.target.origin} was not reached ({'; '.join(failures)})")

    # --- sending and reading ------------------------------------------------------------------------------------

    async def _sent(self, httpx: Any, context: Any, address: Address) -> Answer:
        request, target = self._request, self._request.target

        async def trace(event: str, _: object) -> None:
            self.left = self.left or not event.startswith("connection.")

        host = f"[{address}]" if address.version == 6 else str(address)
        url = f"{target.scheme}://{host}:{target.port}{target.path}"
        transport = httpx.AsyncHTTPTransport(verify=context, trust_env=False, retries=0)
        client = httpx.AsyncClient(
            transport=transport, trust_env=False, timeout=httpx.Timeout(None, connect=CONNECT_SECONDS)
        )
        async with (
            client,
            client.stream(
                request.method,
                url,
                headers=list(request.headers),
                content=request.body or None,
                extensions={"trace": trace, "sni_hostname": target.host},
            ) as response,
        ):
            return await self._read(response)

    async def _read(self, response: httpx2.Response) -> Answer:
        headers = tuple((name.lower(), value) for name, value in response.headers.multi_items())
        answer = Answer(response.status_code, response.reason_phrase, response.http_version, headers, b"")
        self._answer = answer
        data = bytearray()
        async for piece in response.aiter_raw():
            data += piece
            self._answer = answer = msgspec.structs.replace(answer, data=bytes(data[:ANSWER_BYTES]))
            if len(data) > ANSWER_BYTES:
                return msgspec.structs.replace(answer, cut=True)
        return answer


class Forbidden(Exception):  # noqa: N818 - as above
    """A name leads to an address that nobody was asked about. The text is the reason, as a sentence."""


def _library(*, secure: bool) -> tuple[Any, Any]:
    """The client library, and the certificates to trust: both take long to load, so not on the loop."""
    import httpx2

    return httpx2, httpx2.create_ssl_context() if secure else False


def _cause(error: BaseException) -> str:
    """What went wrong on the line: the innermost reason, which is the system's."""
    seen: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None and inner not in seen:
        seen.append(inner)
        inner = inner.__cause__ or inner.__context__
    with contextlib.suppress(StopIteration):
        found = next(one for one in reversed(seen) if isinstance(one, OSError) and str(one))
        return " ".join(str(found.strerror or found).split())
    text = " ".join(str(error).split())
    return text or sentence(error).partition(":")[0]
