"""The policy of working without saving: tools that write stay off, unless the user asked for them in words.

With a store that keeps nothing there is no log to ask after a crash whether a write happened, or how often.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admission, Candidate, Deny


class Unsaved:
    """The plugin.

    Args:
        store: the URL of the store that keeps nothing.
    """

    name = "unsaved"
    requires: tuple[str, ...] = ()

    def __init__(self, store: str) -> None:
        self._store = store

    def apply(self, context: PluginContext) -> None:
        """Stand among the policies, outside of those that were composed later: nobody is asked in vain."""
        context.hook(lambda hooks: hooks.tool_admit, Position.POLICY, self._admit)

    async def _admit(self, call: Candidate, go_on: Callable[[Candidate], Awaitable[Admission]]) -> Admission:
        if call.tool.effect == "write":
            return Deny(
                f"{call.tool.name} writes, and the store {self._store} saves nothing. "
                "The user can allow it with --approve all, or save with --store jsonl:DIR"
            )
        return await go_on(call)
