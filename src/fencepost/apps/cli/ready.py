"""The ready agent, composed in one screen."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fencepost.apps.cli.unsaved import Unsaved
from fencepost.apps.embed import model_of
from fencepost.plugins.approval import Ask, Mode
from fencepost.plugins.shipped import DEFAULT, compose
from fencepost.runtime.call import ToolRules
from fencepost.runtime.config import Config
from fencepost.runtime.plugin import Composition, Plugin
from fencepost.runtime.runtime import SYSTEM, Runtime, Settings
from fencepost.stores.base import Store

RULES = ToolRules(drain=1.5)
"""A turn that is cancelled by a signal is over well before `stop.BOUND`, whatever its tools do."""


def ready_agent(
    store: Store,
    model: str | None,
    config: Config,
    mode: Mode = "read",
    ask: Ask | None = None,
    *,
    writes: bool = False,
    extra: Sequence[Plugin] = (),
) -> Runtime:
    """The shipped plugins, or those that the configuration names, around a store and a model.

    Args:
        store: where logs are durable.
        model: `SCHEME:NAME`; None for an agent that only repairs.
        config: plugins, their settings, the system prompt, the settings of requests.
        mode: which calls pass without asking.
        ask: asks a person.
        writes: whether tools with the effect `write` run although the store saves nothing.
        extra: plugins of the face that runs the agent, in front of the others.

    Raises:
        CompositionError, ConfigError, UsageError: the parts do not fit together.
    """
    plugins = [*extra, *compose(_names(config), mode, ask)]
    if not store.durable and not writes:
        plugins.insert(0, Unsaved(store.url))
    return Runtime(
        store,
        None if model is None else model_of(model, config.settings, os.environ),
        plugins,
        Settings(config.system or SYSTEM, RULES),
        config.plugin,
    )


def composition(config: Config, mode: Mode = "read", extra: Sequence[Plugin] = ()) -> Composition:
    """The plugins alone, for commands that run nothing."""
    return Composition([*extra, *compose(_names(config), mode)], config.plugin)


def _names(config: Config) -> Sequence[str]:
    return DEFAULT if config.plugins is None else config.plugins
