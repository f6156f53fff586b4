"""The API as one JSON schema, made from the types: `python -m fencepost.client.schema`.

The schema that is published beside the documentation (`docs/api.schema.json`) is this, and a test compares them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from fencepost.client import frames, wire


def schema() -> dict[str, Any]:
    """All of the API: `methods` maps each name to its parameters and result, `sent` is what comes unasked."""
    names = list(wire.METHODS)
    types = [kind for name in names for kind in (wire.METHODS[name], wire.METHODS[name].result)]
    made, parts = msgspec.json.schema_components(
        [*types, frames.Sent, frames.Error], ref_template="#/$defs/{name}", schema_hook=_anything
    )
    methods = {
        name: {"params": params, "result": result}
        for name, params, result in zip(names, made[: len(types) : 2], made[1 : len(types) : 2], strict=True)
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fencepost serve",
        "description": "JSON-RPC 2.0. Results may gain fields within one protocol version.",
        "protocol": wire.PROTOCOL,
        "methods": methods,
        "sent": made[-2],
        "error": made[-1],
        "$defs": parts,
    }


def _anything(kind: type) -> dict[str, Any]:
    """JSON that is passed on in the bytes of the log."""
    if kind is msgspec.Raw:
        return {}
    raise NotImplementedError


def text() -> str:
    """The schema as it is published."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
