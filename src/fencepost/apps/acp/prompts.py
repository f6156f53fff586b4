"""What a client puts into a prompt, as the text that the log keeps and the model reads.

    text             itself
    resource_link    [name](uri)
    resource         its text, between marks that name its uri

Images, audio and binary resources are refused: the log keeps text, and `initialize` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp import schema

from fencepost.errors import UsageError


def prompt_text(blocks: Sequence[Any]) -> str:
    """The text of a prompt.

    Args:
        blocks: content blocks, as the SDK reads them.

    Raises:
        UsageError: a block holds something that is no text, or there is nothing.
    """
    text = "".join(_text(block) for block in blocks)
    if not text.strip():
        raise UsageError("the prompt is empty")
    return text


def _text(block: object) -> str:
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return f"[{block.title or block.name}]({block.uri})"
    if isinstance(block, schema.EmbeddedResourceContentBlock):
        resource = block.resource
        if isinstance(resource, schema.TextResourceContents):
            return f'\n<resource uri="{resource.uri}">\n{resource.text}\n</resource>\n'
        raise UsageError(f"{resource.uri} is embedded as binary data", next_act="Embed text, or link to it")
    kind = getattr(block, "type", type(block).__name__)
    raise UsageError(f"a prompt cannot hold {kind} content here", next_act="Send text, links, or embedded text")
