"""`@tool`: from a function to a tool.

    schema         from the annotations of the parameters and their defaults
    descriptions   the text before the docstring's first section; per argument its own section, or
                   `Annotated[..., msgspec.Meta(description=...)]`
    body           an async function runs on the loop, a plain one in a thread of its own
    arguments      arrive as the annotated types, checked before the call is admitted
    CallContext    a parameter annotated so gets the call's context; the model does not see it

What cannot become a tool is refused when it is decorated, with the function, the fault, and what to do.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, overload

import msgspec

from fencepost.core.events import EFFECTS, Effect, Json, ToolSpec
from fencepost.errors import UsageError
from fencepost.runtime.docstrings import describe
from fencepost.runtime.schema import parameters_of, parse
from fencepost.runtime.settlement import Settle
from fencepost.runtime.tools import CallContext, Guard, Lock, Tool

Function: TypeAlias = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLAIN = (type(None), bool, int, float, str)


@overload
def tool(function: Function, /) -> Tool: ...


@overload
def tool(
    *,
    effect: Effect = "write",
    name: str | None = None,
    timeout: float | None = None,
    parallel: bool | None = None,
    lock: Callable[[Any], str | None] | None = None,
    guard: Guard | None = None,
    settle: Settle | None = None,
) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    effect: Effect = "write",
    name: str | None = None,
    timeout: float | None = None,
    parallel: bool | None = None,
    lock: Callable[[Any], str | None] | None = None,
    guard: Guard | None = None,
    settle: Settle | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a tool from an async or a plain function.

    Args:
        function: when used without parentheses.
        effect: what a call does to the world: `read`, `idempotent` (safe to repeat with the same `call_id`) or
            `write`. Decides what is claimed after a crash, and what needs approval.
        name: what the model calls; the function's name if None.
        timeout: seconds after which a call is given up on, its outcome unknown; None: never.
        parallel: whether calls may overlap with others; None: as the effect says.
        lock: names what a call changes, given its arguments as attributes, as in `lock=lambda args: args.path`: calls
            that change different things overlap.
        guard: says why a person should be asked about given arguments; see `Tool.guard`.
        settle: says after a crash what really happened to a call that has no result; see `settlement`.

    Raises:
        UsageError: the function, or what is said about it, cannot become a tool.
    """
    said = _Said(effect, name, timeout, parallel, lock, guard, settle)
    return (lambda given: _make(given, said)) if function is None else _make(function, said)


class _Said(msgspec.Struct, frozen=True):
    """What was said about a function."""

    effect: Effect
    name: str | None
    timeout: float | None
    parallel: bool | None
    lock: Callable[[Any], str | None] | None
    guard: Guard | None
    settle: Settle | None


def _make(function: Function, said: _Said) -> Tool:
    called = said.name if said.name is not None else getattr(function, "__name__", "")
    _check(function, called, said.effect, said.timeout)
    shape = _Shape(function, called)
    described = describe(inspect.getdoc(function))
    spec = ToolSpec(called, described.text, shape.parameters(described.arguments))

    async def body(context: CallContext, arguments: dict[str, Any]) -> Any:
        return await shape.call(context, arguments)

    runs_on_loop = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async is asked for, not callability
    )
    return Tool(
        spec=spec,
        body=body if runs_on_loop else None,
        thread=None if runs_on_loop else shape.call,
        effect=said.effect,
        timeout=said.timeout,
        parallel=said.parallel,
        lock=shape.lock(said.lock) if said.lock is not None else None,
        guard=said.guard,
        settle=said.settle,
        parse=shape.parse,
        function=function,
    )


def _refuse(called: str, fault: str, act: str) -> NoReturn:
    raise UsageError(f"@tool on {called or 'a function without a name'}: {fault}", next_act=act)


def _check(function: Function, called: str, effect: str, timeout: float | None) -> None:
    if not callable(function):
        _refuse(called or repr(function), f"a {type(function).__name__} is not a function", "Decorate a function")
    if not _NAME.fullmatch(called):
        _refuse(called, "the name has to be 1 to 64 of A-Z a-z 0-9 _ -", "Give one: @tool(name='...')")
    if effect not in EFFECTS:
        _refuse(called, f"unknown effect {effect!r}", f"Use one of {', '.join(EFFECTS)}")
    if timeout is not None and not timeout > 0:
        _refuse(called, f"the timeout is {timeout!r}", "Give seconds above zero, or None for no limit")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _refuse(called, "it is a generator", "Return the whole result, and report on the way with CallContext.progress")


class _Shape:
    """The signature of a function, as a struct type and back."""

    def __init__(self, function: Function, called: str) -> None:
        self._function = function
        self._called = called
        self._hints = self._resolve()
        self._signature = inspect.signature(function)
        self._context = [name for name, hint in self._hints.items() if hint is CallContext]
        self._given = [one for one in self._signature.parameters.values() if one.name not in self._context]
        for parameter in self._given:
            self._check(parameter)
        fields = [self._field(parameter) for parameter in self._given]
        try:
            self.type = msgspec.defstruct(f"{called}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        except (TypeError, NameError) as error:
            self._unfit(error)

    def _resolve(self) -> dict[str, Any]:
        target = self._function
        while isinstance(target, functools.partial):
            target = target.func
        if not inspect.isroutine(target):
            target = type(target).__call__
        try:
            hints = typing.get_type_hints(target, include_extras=True)
        except NameError as error:
            _refuse(self._called, f"an annotation cannot be resolved: {error}", "Define that type at module level")
        hints.pop("return", None)
        return hints

    def _check(self, parameter: inspect.Parameter) -> None:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            _refuse(self._called, f"{parameter} has no schema", "Name each parameter, or take one dict or list")
        if parameter.name not in self._hints:
            act = f"Annotate it, as in {parameter.name}: str"
            if parameter.name == "self":
                act = "Decorate a function, or the method of an instance: tool(instance.method)"
            _refuse(self._called, f"parameter {parameter.name!r} has no annotation", act)

    def _field(self, parameter: inspect.Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:
        hint, default = self._hints[parameter.name], parameter.default
        if default is parameter.empty:
            return parameter.name, hint
        if isinstance(default, _PLAIN):
            return parameter.name, hint, default
        return parameter.name, hint, msgspec.field(default_factory=functools.partial(copy.deepcopy, default))

    def _unfit(self, error: Exception) -> NoReturn:
        why = str(error).splitlines()[-1]
        act = "Use str, int, float, bool, list, dict, Literal, dataclasses, TypedDict or msgspec structs"
        _refuse(self._called, f"its parameters have no JSON form: {why}", act)

    def parameters(self, descriptions: dict[str, str]) -> dict[str, Json]:
        """The schema, with descriptions and with the defaults that msgspec leaves out."""
        try:
            schema = parameters_of(self.type)
        except TypeError as error:
            self._unfit(error)
        properties = schema["properties"]
        assert isinstance(properties, dict)
        for parameter in self._given:
            entry = properties[parameter.name]
            assert isinstance(entry, dict)
            if parameter.name in descriptions:
                entry.setdefault("description", descriptions[parameter.name])
            if parameter.default is not parameter.empty and "default" not in entry:
                entry["default"] = msgspec.to_builtins(parameter.default, enc_hook=str, str_keys=True)
        return schema

    def parse(self, arguments: dict[str, Any]) -> msgspec.Struct:
        """The arguments as their real types; raises `msgspec.ValidationError`."""
        return parse(arguments, self.type)

    def lock(self, named: Callable[[Any], str | None]) -> Lock:
        """`named`, asked with the raw arguments of a call."""
        return lambda arguments, _: named(self.parse(arguments))

    def call(self, context: CallContext, arguments: dict[str, Any]) -> Any:
        """Call the function; what an async one gives is to be awaited."""
        parsed = self.parse(arguments)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            value = context if parameter.name in self._context else getattr(parsed, parameter.name)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return self._function(*positional, **named)
