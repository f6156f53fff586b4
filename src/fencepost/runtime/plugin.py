"""What a plugin is, and what it may register.

A plugin is a plain object or module with a `name`, what it `requires`, and `apply(context)`. Third parties ship theirs
through entry points in the group `fencepost.plugins`.

Every registration belongs to the plugin that made it and is undone, in reverse, when the composition is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from fencepost.core import events as ev
from fencepost.errors import CompositionError, ConfigError
from fencepost.runtime.hooks import Hook, HookPoint, Hooks, Position
from fencepost.runtime.models import Model
from fencepost.runtime.toolbox import ToolSource
from fencepost.runtime.tools import Tool

S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")

ModelFactory = Callable[[str, Mapping[str, str], Mapping[str, ev.Json]], Model]
"""Makes a model from its name (`SCHEME:REST`, whole), the environment, and the settings of its requests."""


@runtime_checkable
class Plugin(Protocol):
    """What is composed.

    Attributes:
        name: unique in a composition; the table `[plugin.NAME]` of the configuration belongs to it.
        requires: names of plugins that are applied before it, and closed after it.
    """

    @property
    def name(self) -> str:
        """Unique in a composition."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """Names of plugins that must be there."""
        ...

    def apply(self, context: PluginContext) -> None:
        """Register hooks, tools, models and event types. Does no IO."""
        ...


class Registry:
    """What the plugins of one composition have registered."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self.tools: dict[str, Tool] = {}
        self.models: dict[str, ModelFactory] = {}
        self.events: list[type[ev.Event]] = []
        self.sources: list[ToolSource] = []


class PluginContext:
    """What one plugin gets at `apply`, and the owner of what it registers.

    Args:
        name: the plugin's.
        settings: its table of the configuration.
        registry: where registrations go.
    """

    def __init__(self, name: str, settings: Mapping[str, ev.Json], registry: Registry) -> None:
        self.name = name
        self._settings = settings
        self._registry = registry
        self._undo: list[Callable[[], Awaitable[None] | None]] = []
        self.unread = bool(settings)
        """Whether there are settings that the plugin never looked at."""

    @property
    def settings(self) -> Mapping[str, ev.Json]:
        """The plugin's table of the configuration, as it stands there. `configured` checks it."""
        self.unread = False
        return self._settings

    def configured(self, shape: type[T]) -> T:
        """The plugin's settings as a record of type `shape`.

        Raises:
            ConfigError: a key is unknown, or a value has the wrong type.
        """
        given = dict(self.settings)
        try:
            record = msgspec.convert(given, shape)
        except msgspec.ValidationError as error:
            raise ConfigError(f"[plugin.{self.name}]: {error}") from None
        known = getattr(shape, "__struct_encode_fields__", None)
        unknown = sorted(set(given) - set(known)) if known is not None else []
        if unknown:
            raise ConfigError(
                f"[plugin.{self.name}]: unknown key {unknown[0]!r}", next_act=f"There are: {', '.join(known or ())}"
            )
        return record

    def hook(self, point: Callable[[Hooks], HookPoint[S, R]], position: Position, hook: Hook[S, R]) -> None:
        """Stand around `point` (for instance `lambda hooks: hooks.tool_admit`) at `position`."""
        self._undo.append(point(self._registry.hooks).add(self.name, position, hook))

    def tool(self, tool: Tool) -> None:
        """Offer a tool.

        Raises:
            CompositionError: the name is taken.
        """
        self._claim(self._registry.tools, tool.name, tool, "tool")

    def tools_from(self, source: ToolSource) -> None:
        """Offer tools that have to be fetched for each session, in front of its first turn; see `toolbox`."""
        self._registry.sources.append(source)
        self._undo.append(lambda: self._registry.sources.remove(source))

    def model(self, scheme: str, factory: ModelFactory) -> None:
        """Open models that are named `SCHEME:REST`.

        Raises:
            CompositionError: the scheme is taken.
        """
        self._claim(self._registry.models, scheme, factory, "model scheme")

    def declare(self, event: type[ev.Event]) -> None:
        """Declare an event type; without that it is refused at append.

        Raises:
            CompositionError: the name is taken, by the core or by another plugin.
        """
        name = event.type_name()
        if name in {taken.type_name() for taken in (*ev.CORE_EVENTS, *self._registry.events)}:
            raise CompositionError(f"plugin {self.name}: the event type {name!r} is there already")
        self._registry.events.append(event)
        self._undo.append(lambda: self._registry.events.remove(event))

    def on_close(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` when the composition is closed, before earlier registrations of this plugin are undone."""
        self._undo.append(close)

    def _claim(self, table: dict[str, T], name: str, value: T, what: str) -> None:
        if name in table:
            raise CompositionError(f"plugin {self.name}: the {what} {name!r} is there already")
        table[name] = value

        def release() -> None:
            table.pop(name, None)

        self._undo.append(release)

    async def close(self) -> list[Exception]:
        """Undo everything in reverse; what fails is returned, and does not stop the rest."""
        failures: list[Exception] = []
        while self._undo:
            try:
                waiting = self._undo.pop()()
                if waiting is not None:
                    await waiting
            except Exception as error:  # noqa: BLE001 - one plugin's failing close must not keep the others open
                failures.append(error)
        return failures


class Composition:
    """Plugins applied in an order that satisfies what they require. Closed in reverse.

    Raises:
        CompositionError: a name is used twice, a requirement is missing or goes round in a circle, or a registration
            collides; what was applied so far is undone.
        ConfigError: a setting is wrong, or is for nobody; the same.
    """

    def __init__(self, plugins: list[Plugin], settings: Mapping[str, Mapping[str, ev.Json]]) -> None:
        self.registry = Registry()
        self.plugins = tuple(_ordered(plugins))
        self.settings = settings
        unknown = sorted(set(settings) - {plugin.name for plugin in self.plugins})
        if unknown:
            raise ConfigError(
                f"[plugin.{unknown[0]}] configures a plugin that is not composed",
                next_act=f"Composed are: {', '.join(plugin.name for plugin in self.plugins)}",
            )
        self._contexts: list[PluginContext] = []
        try:
            for plugin in self.plugins:
                self._apply(plugin)
        except BaseException:
            self.undo()
            raise

    def __repr__(self) -> str:
        return f"<Composition {', '.join(plugin.name for plugin in self.plugins)}>"

    def _apply(self, plugin: Plugin) -> None:
        context = PluginContext(plugin.name, self.settings.get(plugin.name, {}), self.registry)
        self._contexts.append(context)
        plugin.apply(context)
        if context.unread:
            raise ConfigError(f"[plugin.{plugin.name}]: this plugin takes no settings")

    async def close(self) -> list[Exception]:
        """Close every plugin, last applied first; returns what failed."""
        failures: list[Exception] = []
        while self._contexts:
            failures.extend(await self._contexts.pop().close())
        return failures

    def undo(self) -> None:
        """Close a composition that never came to life, where nothing can be awaited.

        What a plugin wants to await is finished on the running event loop, or on one of its own where none runs. What
        fails on the way is not worth more than the error that led here.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self.close())
        else:
            self._undoing = loop.create_task(self.close(), name="undo composition")


def _ordered(plugins: list[Plugin]) -> Iterator[Plugin]:
    """The plugins, each behind what it requires, else as given."""
    by_name: dict[str, Plugin] = {}
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise CompositionError(f"{plugin!r} is no plugin: it needs name, requires and apply")
        if plugin.name in by_name:
            raise CompositionError(f"two plugins are named {plugin.name!r}")
        by_name[plugin.name] = plugin
    placed: set[str] = set()

    def place(plugin: Plugin, path: tuple[str, ...]) -> Iterator[Plugin]:
        if plugin.name in path:
            raise CompositionError(f"plugins require each other: {' > '.join((*path, plugin.name))}")
        if plugin.name in placed:
            return
        for need in plugin.requires:
            if need not in by_name:
                raise CompositionError(f"plugin {plugin.name} requires {need!r}, which is not composed")
            yield from place(by_name[need], (*path, plugin.name))
        placed.add(plugin.name)
        yield plugin

    for plugin in plugins:
        yield from place(plugin, ())
