"""The table of legality: whole, printed, and the only word on which event may follow which state."""

import subprocess
import sys

import pytest
from tests.core.logs import Weather

from fencepost.core import events as ev
from fencepost.core.lifecycle import ANYWHERE, TABLE, State, next_state, table

PRINTED = """\
event              idle      turn      step      answered
session/owner      idle      turn      step      answered
input/queued       idle      turn      step      answered
input/dropped      idle      turn      step      answered
turn/start         turn      ·         ·         ·
turn/end           ·         idle      ·         ·
step/start         ·         step      ·         ·
step/end           ·         ·         turn      turn
user/message       ·         ·         step      ·
request/header     ·         ·         step      ·
request/retry      ·         ·         step      ·
assistant/chunk    ·         ·         step      ·
assistant/message  ·         ·         answered  ·
approval/asked     ·         ·         ·         answered
approval/decided   ·         ·         ·         answered
tool/call          ·         ·         ·         answered
tool/result        ·         ·         ·         answered
tool/note          idle      turn      step      answered
context/summary    idle      turn      ·         ·
log/gap            idle      turn      step      answered
log/salvaged       idle      turn      step      answered"""


def test_the_table_as_it_is_printed_is_the_design():
    assert table() == PRINTED


def test_the_module_prints_it():
    shown = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "fencepost.core.lifecycle"],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert shown.stdout == PRINTED + "\n"


def test_the_table_has_a_row_for_every_core_event():
    rows = [line.split()[0] for line in table().splitlines()[1:]]
    assert rows == [kind.type_name() for kind in ev.CORE_EVENTS]


@pytest.mark.parametrize("kind", ev.CORE_EVENTS)
def test_every_core_event_is_legal_somewhere(kind):
    assert any(next_state(state, kind) is not None for state in State)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", ev.CORE_EVENTS)
def test_the_next_state_is_what_the_table_says(state, kind):
    assert next_state(state, kind) is TABLE[state].get(kind)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", [*ANYWHERE, Weather])
def test_what_is_legal_anywhere_changes_no_state(state, kind):
    assert next_state(state, kind) is state


def test_every_state_leads_back_to_idle():
    """So that a session can always be closed."""
    for start in State:
        seen, edge = {start}, {start}
        while edge:
            edge = {after for state in edge for after in TABLE[state].values()} - seen
            seen |= edge
        assert State.IDLE in seen
