"""Rules: which calls never run, and which run without asking.

    [plugin.rules]
    deny  = [ {tool = "shell", command = "git push"}, {tool = "*", path = "/etc/**"}, {tool = "mcp__mail__*"} ]
    allow = [ {tool = "shell", command = "git status *"}, {tool = "write_file", path = "docs/**"} ]

    tool       the tool's name; * stands for any characters. Every rule has it.
    command    words of the argument `command`; * stands for any characters of one word, and as the last word for any
               further words. Without that an allowed command has no others; a denied one may have them always.
    path       where the argument `path` leads; see `path_pattern`.

Rules:
    1. Deny wins over allow, and allow over asking. What no rule names is the approval's business.
    2. An allow rule holds for one simple command (`command_line`), and where `path` really leads. Without `path` it
       does not cover what the tool's own guard warns of, such as a path outside the working directory.
    3. A deny rule looks with suspicion: at each command that a compound line may run (`command_scan`), at a path both
       as it is written and where it leads.
    4. A rule that cannot be understood is an error before anything runs, never a rule that is left out.

A deny rule is no sandbox: it reads what a call says, and there is always another way to say it. It keeps a model from
doing what it was told not to do; it does not keep a program from doing so. Nor does it see what a call finds below the
path that it names: `search_files` in `/` reads `/etc`, and a command reads what it likes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from fencepost.errors import ConfigError
from fencepost.plugins.command_line import CommandPattern, wild
from fencepost.plugins.command_scan import Command, commands_in, may_run
from fencepost.plugins.path_pattern import PathPattern
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admission, Candidate, Deny

HOW = 'A rule is a table with `tool` and, if you like, `command` or `path`: {tool = "shell", command = "git push"}'


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule; see the module for how its texts are written.

    Attributes:
        tool: which tools.
        command: which command lines; any, if left out.
        path: which paths; any, if left out.
    """

    tool: str
    command: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        given = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return "{" + ", ".join(f'{name} = "{value}"' for name, value in given if value is not None) + "}"


class RulesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugin.rules]`.

    Attributes:
        deny: calls that never run.
        allow: calls that run without asking.
    """

    deny: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()


class Rules:
    """The plugin.

    Args:
        deny: in front of what the configuration denies.
        allow: in front of what the configuration allows.
    """

    name = "rules"
    requires: tuple[str, ...] = ()

    def __init__(self, deny: Iterable[Rule] = (), allow: Iterable[Rule] = ()) -> None:
        self._given = RulesSettings(tuple(deny), tuple(allow))
        self._deny: tuple[_Known, ...] = ()
        self._allow: tuple[_Known, ...] = ()

    def apply(self, context: PluginContext) -> None:
        """Stand among the policies, if there is a rule.

        Raises:
            ConfigError: a rule cannot be understood.
        """
        try:
            settings = context.configured(RulesSettings)
        except ConfigError as error:
            raise ConfigError(str(error), next_act=error.next_act or HOW) from None
        self._deny = _known("deny", (*self._given.deny, *settings.deny))
        self._allow = _known("allow", (*self._given.allow, *settings.allow))
        if self._deny or self._allow:
            context.hook(lambda hooks: hooks.tool_admit, Position.POLICY, self._admit)

    async def _admit(self, call: Candidate, go_on: Callable[[Candidate], Awaitable[Admission]]) -> Admission:
        said = _said(call)
        denied = next((rule for rule in self._deny if rule.denies(said)), None)
        if denied is not None:
            return Deny(f"{call.tool.name} with these arguments is denied by the user's rule {denied.label}")
        allowed = next((rule for rule in self._allow if rule.allows(said)), None)
        if allowed is not None:
            call = msgspec.structs.replace(call, allowed_by=f"rule {allowed.label}")
        return await go_on(call)


class _Said(msgspec.Struct):
    """What a call says that rules look at."""

    call: Candidate
    command: str | None
    path: str | None
    _commands: tuple[Command, ...] | None = None

    def commands(self) -> tuple[Command, ...]:
        """The commands that its line may run."""
        if self._commands is None:
            self._commands = commands_in(self.command or "")
        return self._commands


def _said(call: Candidate) -> _Said:
    properties = call.tool.spec.parameters.get("properties")
    shape = properties.get("path") if isinstance(properties, dict) else None
    path = call.arguments.get("path", shape.get("default") if isinstance(shape, dict) else None)
    command = call.arguments.get("command")
    return _Said(call, command if isinstance(command, str) else None, path if isinstance(path, str) else None)


class _Known(msgspec.Struct, frozen=True):
    """A rule that was understood."""

    label: str
    tool: re.Pattern[str]
    command: CommandPattern | None
    path: PathPattern | None

    def denies(self, said: _Said) -> bool:
        if not self.tool.fullmatch(said.call.tool.name):
            return False
        if self.command is not None:
            return may_run(self.command, said.commands())
        return self.path is None or (said.path is not None and self.path.refuses(said.path, said.call.cwd))

    def allows(self, said: _Said) -> bool:
        if not self.tool.fullmatch(said.call.tool.name):
            return False
        if self.path is not None:
            return said.path is not None and self.path.allows(said.path, said.call.cwd)
        if self.command is not None and not (said.command is not None and self.command.is_exactly(said.command)):
            return False
        return said.call.warning is None


def _known(kind: str, rules: tuple[Rule, ...]) -> tuple[_Known, ...]:
    return tuple(_understood(f"{kind}[{number}] {rule}", rule) for number, rule in enumerate(rules))


def _understood(label: str, rule: Rule) -> _Known:
    if not rule.tool.strip():
        raise ConfigError(f"[plugin.rules] {label}: `tool` is empty", next_act=f'{HOW}; tool = "*" is every tool')
    if rule.command is not None and rule.path is not None:
        raise ConfigError(f"[plugin.rules] {label}: it has both `command` and `path`", next_act="Make two rules of it")
    command, path = rule.command, rule.path
    try:
        return _Known(
            label,
            wild(rule.tool),
            None if command is None else CommandPattern.parse(command),
            None if path is None else PathPattern.parse(path),
        )
    except ValueError as error:
        key = "command" if path is None else "path"
        raise ConfigError(f"[plugin.rules] {label}: `{key}` is no pattern: {error}", next_act=HOW) from None
