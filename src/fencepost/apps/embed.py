"""fencepost inside a Python program: `fencepost.open`.

    async with fp.open("jsonl:./sessions", model="openai:gpt-5", tools=[send_mail]) as runtime:
        session = await runtime.create()
        turn = await session.prompt("Tell Ada that the build is green.")

The gates are on. Whoever wants to run without them, or without saving, spells it out: `gates=False`, `"memory:"`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from fencepost.core.events import Json
from fencepost.errors import UsageError
from fencepost.plugins.approval import MODES, Approval, Ask, Mode
from fencepost.plugins.checkpoint import Checkpoint
from fencepost.plugins.compaction import Compaction
from fencepost.plugins.retry import Retry
from fencepost.plugins.shipped import Models, ToolsPlugin
from fencepost.runtime.models import Model
from fencepost.runtime.plugin import Composition, Plugin
from fencepost.runtime.runtime import Runtime, Settings
from fencepost.runtime.tools import Tool
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store


def open(  # noqa: A001 - the name that a user expects; it is always written with its module
    store: str | Store,
    *,
    model: str | Model | None = None,
    tools: Sequence[Tool] = (),
    plugins: Sequence[Plugin] = (),
    approve: Mode = "all",
    ask: Ask | None = None,
    gates: bool = True,
    settings: Settings | None = None,
    model_settings: Mapping[str, Json] | None = None,
    plugin_settings: Mapping[str, Mapping[str, Json]] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Runtime:
    """A runtime, to be used as an async context manager.

    Args:
        store: a store, or its URL: `jsonl:DIR`, or `memory:` to save nothing.
        model: a model, or `SCHEME:NAME` (`anthropic:`, `openai:`, `deepseek:`, `local:`,
            `script:` and what plugins add). None: look only.
        tools: made with `fencepost.tool`.
        plugins: more plugins.
        approve: which calls pass without asking; here all of them, for they are the program's own.
        ask: asks a person, for `approve="ask"`.
        gates: False leaves the checkpoint policy out: legal, recorded in each `turn/start`, and after a crash the
            outcome of every call without a result is unknown (law 10).
        settings: system prompt and rules of the tool pipeline.
        model_settings: sent with every model request (`temperature` …).
        plugin_settings: a table for each plugin that is configured.
        environ: where models look for their keys.

    Raises:
        UsageError: a URL or a mode is wrong.
        CompositionError, ConfigError: the parts do not fit together.
    """
    if approve not in MODES:
        raise UsageError(f"approve={approve!r} is not one of {', '.join(MODES)}")
    if approve == "ask" and ask is None:
        raise UsageError("approve='ask' needs somebody to ask", next_act="Give ask=, an async function of a Question")
    if model_settings and not isinstance(model, str):
        raise UsageError("model_settings belong to a model that is named", next_act="Give them to the model itself")
    for one in tools:
        if not isinstance(one, Tool):
            raise UsageError(f"{one!r} is no tool", next_act="Make one with @fencepost.tool")
    composed: list[Plugin] = [Models(), Retry(), Approval(approve, ask), ToolsPlugin("tools", tools), *plugins]
    if not any(getattr(plugin, "name", None) == Compaction.name for plugin in plugins):
        composed.append(Compaction())
    if gates:
        composed.insert(1, Checkpoint())
    return Runtime(
        open_store(store) if isinstance(store, str) else store,
        model_of(model, model_settings or {}, environ) if isinstance(model, str) else model,
        composed,
        settings,
        plugin_settings,
    )


def model_of(spec: str, settings: Mapping[str, Json], environ: Mapping[str, str]) -> Callable[[Composition], Model]:
    """What makes the model that `spec` names, once the plugins that know its scheme are composed.

    Raises (when called):
        UsageError: the scheme is not known.
        ConfigError: the model is not set up, for instance without a key.
    """

    def make(composition: Composition) -> Model:
        scheme, colon, rest = spec.partition(":")
        factory = composition.registry.models.get(scheme)
        if not colon or not rest or factory is None:
            known = ", ".join(f"{name}:" for name in sorted(composition.registry.models))
            raise UsageError(f"no model is known for {spec!r}", next_act=f"Write SCHEME:NAME; known are {known}")
        return factory(spec, environ, settings)

    return make
