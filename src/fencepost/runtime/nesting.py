"""What a call may not call: what would go round in a circle, what is too deep, what does more than itself.

Rules:
    1. No call makes itself again: the same tool with the same arguments does not stand twice in one chain of calls.
    2. A chain has at most `ToolRules.depth` calls below the model's own.
    3. A call makes none that may do more than it was declared to do itself: reads overlap and are let through by
       policies, and `read` and `idempotent` calls may run again after a crash, with all that they call.

What it refuses to be: the running of a nested call (`call`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from fencepost.core import events as ev
from fencepost.core.normalise import clean_json
from fencepost.runtime.subjects import Candidate


def nesting_problem(call: Candidate, depth: int) -> str | None:
    """Why a nested call may not be made, as half a sentence; None if it may.

    Args:
        call: the nested one.
        depth: calls below the model's own, at most.
    """
    name, chain = call.tool.name, list(_above(call))
    asked = _same(call.arguments)
    if any(above.name == name and _same(msgspec.to_builtins(above.arguments)) == asked for above in chain):
        path = " > ".join([*(above.name for above in reversed(chain)), name])
        return f"{name} with these arguments is running already and would call itself in a circle ({path})"
    if len(chain) > depth:
        return f"the calls are nested {depth} deep already, and deeper is not allowed"
    parent = chain[0]
    if ev.EFFECTS.index(call.effect) > ev.EFFECTS.index(parent.effect):
        return f"{parent.name} is declared {parent.effect!r} and may not call {name}, which is {call.effect!r}"
    return None


def _above(call: Candidate) -> Iterator[ev.ToolCall]:
    """The calls that a nested one stands in, the nearest first."""
    calls, name = call.journal.log.fold.calls, call.parent
    while name is not None:
        above = calls[name].admitted
        assert above is not None, "only a call that was let go makes others"
        yield above
        name = above.parent


def _same(arguments: dict[str, Any]) -> bytes:
    """One form for equal arguments, as the log would have them."""
    return msgspec.json.encode(clean_json(arguments, "", []), order="deterministic")
