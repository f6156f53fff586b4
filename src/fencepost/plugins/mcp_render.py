"""What a server gave back, as text for the model: its text to the letter, of everything else what it is and where.

Images, sounds and other bytes are kept in the session's directory and named; so is a text that is too long. A file
that cannot be written is told and fails nothing: the call is over.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import os
from pathlib import Path

import msgspec
from mcp import types

HEAD = 24_576
"""Characters of a long answer that the model gets from its beginning."""
TAIL = 8_192
"""Characters that it gets from the end."""


class Rendering:
    """The answer to one call.

    Args:
        call_id: begins the names of files.
        files: where they go; made if it is missing.
    """

    def __init__(self, call_id: str, files: Path) -> None:
        self._call_id = call_id
        self._files = files
        self._kept = 0

    def text(self, result: types.CallToolResult) -> str:
        """The whole answer."""
        parts = [self._block(block) for block in result.content]
        if result.structured_content is not None and not _said(result):
            parts.append(msgspec.json.encode(result.structured_content).decode())
        return self._bounded("\n".join(parts)) or "(no output)"

    def _block(self, block: types.ContentBlock) -> str:
        match block:
            case types.TextContent():
                return block.text
            case types.ImageContent() | types.AudioContent():
                return self._bytes(block.type, block.mime_type, block.data)
            case types.ResourceLink():
                about = f", {block.description}" if block.description else ""
                return f"[resource {block.uri}: {block.title or block.name}{about}]"
            case types.EmbeddedResource(resource=types.TextResourceContents() as inner):
                return f"[resource {inner.uri}]\n{inner.text}"
            case types.EmbeddedResource(resource=types.BlobResourceContents() as inner):
                return self._bytes(f"resource {inner.uri}", inner.mime_type or "application/octet-stream", inner.blob)
        raise TypeError(f"no such content: {type(block).__name__}")

    def _bytes(self, what: str, kind: str, data: str) -> str:
        try:
            raw = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            return f"[{what}, {kind}: its bytes cannot be read ({error})]"
        ending = mimetypes.guess_extension(kind.partition(";")[0].strip()) or ".bin"
        return f"[{what}, {kind}, {len(raw)} bytes, {self._keep(raw, ending)}]"

    def _bounded(self, text: str) -> str:
        if len(text) <= HEAD + TAIL:
            return text
        left_out = len(text) - HEAD - TAIL
        where = self._keep(text.encode("utf-8", "replace"), ".txt")
        return f"{text[:HEAD]}\n[… {left_out} characters are left out here; all of it {where} …]\n{text[-TAIL:]}"

    def _keep(self, data: bytes, ending: str) -> str:
        """Put bytes into a file; says where they are, or why not. The same call may have been made before."""
        self._kept += 1
        path = self._files / f"{self._call_id}-{self._kept}{ending}"
        try:
            self._files.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(data)
        except OSError as error:
            return f"could not be kept in {path}: {error.strerror}"
        return f"in {path}"


def _said(result: types.CallToolResult) -> bool:
    """Whether the content of the answer says its structured content already, as the protocol asks of servers.

    Servers wrap what is no object in one with a single member, say each item of a list in a text of its own, or give
    their content blocks a second time.
    """
    texts: list[object] = [block.text for block in result.content if isinstance(block, types.TextContent)]
    values = [_decoded(text) for text in texts]
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    structured = result.structured_content
    inside = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    said = [*texts, *values, texts, values, blocks]
    return structured in said or inside in said


def _decoded(text: object) -> object:
    try:
        return msgspec.json.decode(str(text))
    except msgspec.DecodeError:
        return text
