"""`update_plan`: the tool through which a model says what it is going to do, step by step.

It changes nothing in the world: its arguments, which the log has, are the plan. Clients show it on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from acp import schema
from msgspec import Meta

from fencepost.runtime.toolmaker import tool

PLAN = "update_plan"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


@tool(effect="read")
async def update_plan(entries: Annotated[list[Entry], Meta(description="all steps, in order, each time")]) -> str:
    """Show the user your plan for a task of several steps, and again whenever a step begins or is done."""
    done = sum(entry.status == "completed" for entry in entries)
    return f"The user sees the plan: {done} of {len(entries)} steps are done."


class _Plan(msgspec.Struct, frozen=True):
    entries: list[Entry]


def plan_of(arguments: Mapping[str, Any]) -> schema.AgentPlanUpdate | None:
    """The plan that a call gives; None where its arguments are none."""
    try:
        plan = msgspec.convert(msgspec.to_builtins(arguments), _Plan)
    except msgspec.ValidationError:
        return None
    return schema.AgentPlanUpdate(
        session_update="plan",
        entries=[
            schema.PlanEntry(content=entry.content, priority=entry.priority, status=entry.status)
            for entry in plan.entries
        ],
    )
