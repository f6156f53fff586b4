"""Salvage of damaged databases: the same code, for any store that reports damage."""

import asyncio

import apsw
import pytest
from tests.journal.test_session import later
from tests.stores.sample import lines_of, notes
from tests.stores.sqlite.sessions import store_at, write

from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.journal.inspect import inspect
from fencepost.journal.salvage import salvage_session
from fencepost.journal.session import Journal

FIVE = "WHERE session = 1 AND seq = 5"


@pytest.mark.parametrize(
    ("statement", "lost", "kept"),
    [
        (f"DELETE FROM batch {FIVE}", (5, 5), 11),
        (f"UPDATE batch SET data = zeroblob(80) {FIVE}", (5, 5), 11),
        (f"UPDATE batch SET next = 9 {FIVE}", None, 12),
        ("DELETE FROM batch WHERE session = 1 AND seq = 0", (0, 0), 11),
        ("DELETE FROM batch WHERE session = 1 AND seq = 11", (11, None), 11),
        ("DELETE FROM batch WHERE session = 1", (0, None), 0),
        ("DELETE FROM head WHERE session = 1", (12, None), 12),
    ],
)
def test_a_damaged_row_becomes_a_gap_and_the_rest_goes_on(tmp_path, statement, lost, kept):
    file = tmp_path / "a.db"
    write(file, 12)
    connection = apsw.Connection(str(file))
    connection.execute(statement)
    connection.close()

    async def scenario():
        async with store_at(file) as store:
            before = await store.read("s1")
            made = await salvage_session(store, "s1", "new", later(), CORE, "/")
            stored = await store.read("new")
            gap = next(entry for entry in stored.entries if isinstance(entry, ev.Gap))
            assert (gap.lost_from, gap.lost_to) == (lost or (None, None))
            texts = [entry.text for entry in stored.entries if isinstance(entry, ev.ToolNote)]
            assert len(texts) == kept
            assert set(texts) <= {entry.text for entry in notes(0, 12)}
            assert len(made.lines) == 1
            journal, _ = await Journal.resume(store, "new", later(), CORE)
            await journal.close()
            assert (await inspect(store, "new")).state == "clean"
            found = await inspect(store, "s1")
            assert found.problem.startswith("at row ")
            assert lines_of((await store.read("s1")).entries) == lines_of(before.entries)

    asyncio.run(scenario())
