"""Which calls pass without asking, as the modes of a session; and the same as a configuration option.

A mode is how this client wants to work, not a fact of the session: it is told with every session that is opened, begins
as it is configured, and ends with the connection. A session that comes back after a crash asks again.
"""

from __future__ import annotations

from acp import schema

from fencepost.errors import UsageError
from fencepost.plugins.approval import MODES, Mode

OPTION = "mode"

_ABOUT: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Ask about every call that does more than read"),
    "read": ("Read only", "Let calls pass that only read, deny the others"),
    "all": ("Allow all", "Let every call pass without asking"),
    "none": ("No tools", "Deny every call"),
}


def mode_of(name: str) -> Mode:
    """The mode of a name.

    Raises:
        UsageError: there is none.
    """
    for mode in MODES:
        if mode == name:
            return mode
    raise UsageError(f"there is no mode {name!r}", next_act=f"There are: {', '.join(MODES)}")


def modes(current: Mode) -> schema.SessionModeState:
    """All modes, and which one is in force."""
    return schema.SessionModeState(
        current_mode_id=current,
        available_modes=[
            schema.SessionMode(id=mode, name=_ABOUT[mode][0], description=_ABOUT[mode][1]) for mode in MODES
        ],
    )


def options(current: Mode) -> list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]:
    """The configuration options of a session: the mode, for clients that know options only."""
    return [
        schema.SessionConfigOptionSelect(
            id=OPTION,
            name="Approval",
            category="mode",
            type="select",
            current_value=current,
            options=[
                schema.SessionConfigSelectOption(value=mode, name=_ABOUT[mode][0], description=_ABOUT[mode][1])
                for mode in MODES
            ],
        )
    ]
