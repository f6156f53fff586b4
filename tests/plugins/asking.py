"""Asking a model behind a server on this machine, for the tests of models."""

import asyncio
import contextlib
import json
import socket
import threading

import pytest
from tests.plugins.transcripts import request

from fencepost.errors import ModelError
from fencepost.plugins.anthropic import AnthropicModel
from fencepost.plugins.openai import OpenAIModel
from fencepost.runtime.models import TextDelta

KEY = "sk-secret-0123456789"


def chat(server, **options):
    """A model behind the server's chat completions."""
    return OpenAIModel("any", base_url=server.url, api_key=KEY, **options)


def messages(server, **options):
    """A model behind the server's Anthropic messages."""
    return AnthropicModel("any", base_url=server.anthropic_url, api_key=KEY, **options)


def run(server, work, make=chat, **options):
    """`work` with a model behind `server`, closed at the end."""

    async def whole():
        model = make(server, **options)
        try:
            return await work(model)
        finally:
            await model.close()

    return asyncio.run(whole())


def ask(server, asked=None, **options):
    """All deltas of one stream."""

    async def work(model):
        return [delta async for delta in model.stream(asked or request())]

    return run(server, work, **options)


def fail(server, asked=None, **options):
    """What came before the failure, and the failure."""
    seen = []

    async def work(model):
        with pytest.raises(ModelError) as caught:
            async for delta in model.stream(asked or request()):
                seen.append(delta)  # noqa: PERF401 - what came before a failure would be lost in a comprehension
        return caught.value

    return seen, run(server, work, **options)


def text(deltas):
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


# --- a server that says exactly these bytes ---------------------------------------------------------------------


def sse(*chunks):
    """A response whose body says that more would come, and does not."""
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    return head % (len(body) + 100) + body


@contextlib.contextmanager
def raw_server(data):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(65536)
                head, _, body = received.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                while len(body) < length:
                    body += connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        thread.join()


async def deltas_from(url):
    model = OpenAIModel("any", base_url=url)
    try:
        return [delta async for delta in model.stream(request())]
    finally:
        await model.close()
