"""`fencepost config`: what is composed here, and in which order."""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from fencepost.apps.cli import chosen, exits
from fencepost.apps.cli.ready import composition
from fencepost.core.events import Effect, Gate
from fencepost.runtime.config import FILE, config_home, load
from fencepost.stores.urls import open_store


class HookView(msgspec.Struct, frozen=True):
    """One hook point: who stands there, outermost first, and the gate that is held."""

    point: str
    owners: list[str]
    gate: Gate | None


class ToolView(msgspec.Struct, frozen=True):
    """One tool."""

    name: str
    effect: Effect
    timeout: float | None


class ConfigView(msgspec.Struct, frozen=True):
    """What is composed. The fields are for programs."""

    file: str | None
    model: str | None
    store: str
    durable: bool
    approve: str
    plugins: list[str]
    gates: list[Gate]
    policy: str
    hooks: list[HookView]
    tools: list[ToolView]


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    view = composed(arguments)
    if arguments.json:
        sys.stdout.buffer.write(msgspec.json.encode(view) + b"\n")
    else:
        _print(view)
    return exits.DONE


def composed(arguments: argparse.Namespace) -> ConfigView:
    """What `fencepost run` would compose in this directory.

    Raises:
        ConfigError, CompositionError, UsageError: it would not start.
    """
    loaded = load(chosen.directory(None))
    approve = chosen.approve(argparse.Namespace(approve=None), loaded)
    parts = composition(loaded.config, approve.mode)
    store = open_store(chosen.store_url(arguments.store, loaded))
    hooks = parts.registry.hooks
    return ConfigView(
        file=str(loaded.path) if loaded.path else None,
        model=chosen.model_spec(None, loaded),
        store=store.url,
        durable=store.durable,
        approve=approve.mode,
        plugins=[plugin.name for plugin in parts.plugins],
        gates=list(hooks.gates()),
        policy=hooks.policy(),
        hooks=[
            HookView(point.name, point.owners(), point.gate if point.gate_owner() else None) for point in hooks.points()
        ],
        tools=[ToolView(tool.name, tool.effect, tool.timeout) for tool in parts.registry.tools.values()],
    )


def _print(view: ConfigView) -> None:
    from fencepost.apps.cli import paper

    out = paper.paper()
    absent = f"none ({FILE} here, or in {config_home(os.environ)})"
    for name, value in (
        ("file", view.file or absent),
        ("model", view.model or "not chosen: --model, FENCEPOST_MODEL, or `model` in the file"),
        ("store", view.store + ("" if view.durable else "  NOT SAVED")),
        ("approve", view.approve),
        ("plugins", ", ".join(view.plugins)),
        ("gates", f"{', '.join(view.gates)} (held by: {view.policy})"),
    ):
        out.print(paper.styled(f"{name:<9}{value}"))
    hooks = paper.table(("hook", "gate", "who stands there, outermost first"), fixed=2)
    for hook in view.hooks:
        hooks.add_row(hook.point, hook.gate or "-", paper.styled(" > ".join(hook.owners) or "-"))
    out.print()
    out.print(hooks)
    tools = paper.table(("tool", "effect"), fixed=2)
    for tool in view.tools:
        tools.add_row(paper.styled(tool.name), tool.effect)
    out.print()
    out.print(tools)
