"""Running calls again that a crash left without a result, where the user lets it: `--rerun read`, `--rerun idempotent`.

Rules:
    1. Only a call whose `tool/call` is in the log, and only if it was declared with that effect then and is now, and
       its arguments still fit. Never one that still runs. Never a nested one: what it was part of runs no more.
    2. It keeps its `call_id`, the key that its tool was given before, and gets a `tool/call` of its own, behind the
       gate, that names the earlier one.
    3. If that comes to nothing the outcome stays unknown: the first run may have had its effect (law 2).
    4. Policies are not asked a second time: they let the call go, and the user lets it go again by name of its effect.

Nothing here decides what may run again: that is handed in, and is nothing by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from fencepost.core.events import Effect
from fencepost.core.log import CallRecord
from fencepost.runtime.call import Calls, Site
from fencepost.runtime.replies import sentence
from fencepost.runtime.schema import validate
from fencepost.runtime.subjects import Notice
from fencepost.runtime.tools import Tool


def rerunnable(effects: AbstractSet[Effect], tools: Mapping[str, Tool]) -> Callable[[CallRecord], bool]:
    """Whether a call may run again (rule 1)."""

    def may(record: CallRecord) -> bool:
        admitted, tool = record.admitted, tools.get(record.name)
        if admitted is None or record.parent is not None or tool is None or admitted.effect not in effects:
            return False
        arguments = msgspec.to_builtins(admitted.arguments)
        try:
            return tool.effect_of(arguments) in effects and validate(tool, arguments) is None
        except Exception:  # noqa: BLE001 - a tool that cannot say what a call would do is not let
            return False

    return may


async def rerun(site: Site, may: Callable[[CallRecord], bool]) -> None:
    """Run again, one after the other, what has no result and may. Their nested calls are closed already."""
    fold, calls = site.journal.log.fold, Calls(site)
    for name in list(fold.owed):
        record = fold.calls[name]
        if may(record) and calls.stopped() is None:
            await calls.again(record)
    if calls.fault is not None:
        site.notify(Notice("note", f"running calls again was stopped by a fault: {sentence(calls.fault)}"))
