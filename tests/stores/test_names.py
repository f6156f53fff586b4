"""Names (the row "paths and modes"): one id, one segment, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import UsageError
from fencepost.stores.names import LONGEST, is_shortened, segment, session_of
from tests.stores.contract import ODD_IDS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("01jd0v-build_fix.2", "01jd0v-build_fix.2"),
        ("../x", "%2E.%2Fx"),
        ("..", "%2E%2E"),
        ("CON", "%43%4F%4E"),
        ("con", "%63on"),
        ("nul.txt", "%6Eul.txt"),
        ("Ab", "%41b"),
        ("é", "%C3%A9"),
    ],
)
def test_examples(session: str, name: str) -> None:
    assert segment(session) == name
    assert session_of(name) == session


def assert_safe(name: str) -> None:
    assert 0 < len(name) <= LONGEST
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set('/\\:*?"<>| ')
    assert not name.startswith(".")
    assert not name.endswith(".")
    assert name.split(".")[0].lower() not in DEVICES


@pytest.mark.parametrize("session", ODD_IDS)
def test_odd_ids_have_safe_names(session: str) -> None:
    assert_safe(segment(session))


@given(TEXT)
def test_a_segment_is_safe_and_leads_back(session: str) -> None:
    name = segment(session)
    assert_safe(name)
    assert is_shortened(name) or session_of(name) == session


@given(TEXT, TEXT)
def test_two_ids_never_share_a_segment_even_where_case_is_folded(one: str, other: str) -> None:
    for left, right in ((one, other), (one, one.swapcase()), (one, one + other)):
        if left != right:
            assert segment(left).lower() != segment(right).lower()


def test_long_ids_differ_by_their_hash() -> None:
    names = {segment("x" * 300 + end) for end in ("", "a", "b")}
    assert len(names) == 3
    assert all(is_shortened(name) and session_of(name) is None for name in names)


@pytest.mark.parametrize("session", ["", "\ud83d"])
def test_what_is_no_id_is_refused(session: str) -> None:
    with pytest.raises(UsageError):
        segment(session)


@pytest.mark.parametrize("name", [".trash", "Build", "%61", "%", "a b", "%ff", "%FF", "x~", "lost+found", "con"])
def test_what_the_rule_cannot_have_made_is_not_ours(name: str) -> None:
    assert session_of(name) is None
