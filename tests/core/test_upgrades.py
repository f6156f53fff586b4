"""Older formats are read through pure steps, one per version; this release's own chain is complete."""

import msgspec
import pytest

from fencepost.core.codec import FORMAT, NotARecordError
from fencepost.core.upgrades import CHAIN, Step, leads_here, upgraded_event, upgraded_header

THREE = {
    -2: Step(event=lambda record: {**record, "trail": [*record.get("trail", []), "-2"]}),
    -1: Step(event=lambda record: {**record, "trail": [*record.get("trail", []), "-1"]}),
    0: Step(header=lambda record: {"type": "session", "session": record["id"]}),
}


def test_each_step_is_taken_once_in_order_up_to_this_format():
    line = b'{"type":"x","seq":3}'
    assert msgspec.json.decode(upgraded_event(line, -2, THREE)) == {"type": "x", "seq": 3, "trail": ["-2", "-1"]}
    assert msgspec.json.decode(upgraded_event(line, -1, THREE))["trail"] == ["-1"]
    assert upgraded_event(line, FORMAT, THREE) == line


def test_an_upgraded_header_says_this_format():
    header = msgspec.json.decode(upgraded_header(b'{"type":"session","id":"s1","format":-2}', -2, THREE))
    assert header == {"type": "session", "session": "s1", "format": FORMAT}


def test_a_format_is_read_where_every_step_is_known():
    assert [number for number in range(-4, FORMAT + 3) if leads_here(number, THREE)] == [-2, -1, 0, FORMAT]
    assert not leads_here(-2, {-2: Step(), 0: Step()})
    assert leads_here(FORMAT)


def test_this_release_reads_every_released_format():
    """The chain has no hole: whoever raises FORMAT adds a step, and a fixture."""
    assert set(CHAIN) == set(range(1, FORMAT))
    assert leads_here(1)


@pytest.mark.parametrize("line", [b"", b"[]", b'{"type":', b'"x"', b'{"type":"\xff"}'])
def test_what_is_no_object_is_no_record(line):
    for upgrade in (upgraded_event, upgraded_header):
        with pytest.raises(NotARecordError):
            upgrade(line, 0, THREE)


def test_a_record_that_no_step_changes_keeps_its_bytes():
    line = b'{"type":"x","seq":3,"deep":{"a":[1,2.5,null]}}'
    assert upgraded_event(line, 0, THREE) == line
