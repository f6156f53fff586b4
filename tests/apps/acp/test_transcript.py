"""The page that shows a killed session coming back says what really happens."""

from __future__ import annotations

from pathlib import Path

from tests.apps.acp import transcript


def test_the_page_is_what_a_run_gives(tmp_path: Path) -> None:
    assert transcript.run(tmp_path) == transcript.PAGE.read_text()


def test_the_page_shows_the_guidance_in_the_next_turn() -> None:
    sent = transcript.PAGE.read_text().rpartition("## What the model was sent")[2]
    assert "Retry it only if it is read-only or idempotent; otherwise verify first what really happened" in sent
