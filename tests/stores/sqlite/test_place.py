"""Files, names and modes; databases that are not ours, or newer; libraries and file systems that are refused."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from fencepost.core.codec import Vocabulary
from fencepost.errors import FencepostError, UnsupportedError, UsageError
from fencepost.stores.sqlite import SqliteStore
from fencepost.stores.sqlite.mounts import is_network, kind_of, refuse_network
from fencepost.stores.sqlite.schema import refuse_library
from fencepost.stores.urls import open_store
from tests.stores.sample import header, note
from tests.stores.sqlite.sessions import store_at, write


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def said(script: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_nobody_else_may_look(tmp_path: Path, umask: int) -> None:
    file = tmp_path / "made" / "deep" / "a.db"

    async def main() -> None:
        async with store_at(file) as store:
            handle = await store.create(header())
            for seq in range(2):  # the watermark of the first is written before the second
                await handle.append([note(seq)], seq)
            found = {path.name: mode(path) for path in file.parent.iterdir()}
            private, directory = "0o600", "0o700"
            assert found == {
                "a.db": private,
                "a.db-wal": private,
                "a.db-shm": private,
                "a.db-watermark": private,
                "a.db-locks": directory,
            }
            assert {mode(path) for path in (file.parent / "a.db-locks").iterdir()} == {private}
            assert {mode(file.parent), mode(file.parent.parent)} == {directory}

    before = os.umask(umask)
    try:
        asyncio.run(main())
    finally:
        os.umask(before)


def test_a_url_names_the_file(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path}/a.db")
    assert isinstance(store, SqliteStore)
    assert store.url == f"sqlite:{tmp_path}/a.db"
    assert store.files("s1") == tmp_path / "a.db-files" / "s1"
    assert os.listdir(tmp_path) == []
    with pytest.raises(UsageError, match="names no file") as caught:
        open_store("sqlite:")
    assert "sqlite:FILE" in caught.value.next_act


def test_the_extra_that_is_missing_is_named() -> None:
    script = """
import sys
sys.modules["apsw"] = None
from fencepost.stores.urls import open_store
try:
    open_store("sqlite:a.db")
except Exception as error:
    print(type(error).__name__, error.explain())
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert (
        found == "UsageError sqlite: needs apsw, which is not installed. Install it: pip install 'fencepost[sqlite]'\n"
    )


def test_nothing_is_imported_for_other_stores() -> None:
    script = "import sys, fencepost.stores.urls as urls; urls.open_store('memory:'); print('apsw' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


# --- files that are not ours -----------------------------------------------------------------------------------------


def refused(file: Path, kind: type[FencepostError], match: str) -> None:
    """Every way to it says so, and changes nothing."""
    before = file.read_bytes()

    async def main() -> None:
        async with store_at(file) as store:
            for ask in (store.sessions(), store.read("s1"), store.own("s1"), store.create(header())):
                with pytest.raises(kind, match=match) as caught:
                    await ask
                assert str(file) in str(caught.value)

    asyncio.run(main())
    assert file.read_bytes() == before


def test_a_text_is_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_text("Dear diary,\n" * 1000)
    refused(file, UsageError, "is not a SQLite database")


def test_a_database_of_another_application_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE session (id INTEGER PRIMARY KEY)")
    connection.close()
    refused(file, UsageError, "another application's")


def test_an_empty_database_becomes_ours(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.touch()
    write(file, 1)
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x66656E63,)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


def test_a_newer_database_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    write(file, 1)
    connection = apsw.Connection(str(file))
    connection.pragma("user_version", 2)
    connection.close()
    refused(file, UnsupportedError, r"a newer fencepost \(format 2; this one knows 1\)")


def test_the_tables_can_be_read_by_people(tmp_path: Path) -> None:
    """What a batch holds is text: one JSON object a line."""
    file = tmp_path / "a.db"
    write(file, 2)
    with sqlite3.connect(file) as connection:
        found = connection.execute(
            "SELECT name, seq, CAST(data AS TEXT) ->> 'text' FROM batch JOIN session ON session.id = batch.session"
        ).fetchall()
    connection.close()
    assert found == [("s1", 0, "note 0"), ("s1", 1, "note 1")]


def test_a_vocabulary_refuses_what_it_does_not_declare(tmp_path: Path) -> None:
    from fencepost.core import codec

    file = tmp_path / "a.db"

    async def main() -> None:
        async with store_at(file) as store:
            handle = await store.create(header())
            await handle.append([codec.CORE.decode(b'{"type":"acme/thing","seq":0,"time":1}')], 0)
        async with store_at(file, vocabulary=Vocabulary()) as store:
            assert "acme/thing" in ((await store.read("s1")).refusal or "")
            with pytest.raises(UnsupportedError, match="acme/thing"):
                await (await store.own("s1")).append([note(1)], 1)

    asyncio.run(main())


# --- libraries and file systems ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_a_library_that_corrupts_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedError, match=version):
        refuse_library(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.54.0", "3.54.1", "4.0.0"])
def test_a_sound_library_is_taken(version: str) -> None:
    refuse_library(version)


MOUNTS = r"""
/dev/sda1 / ext4 rw,relatime 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/local xfs rw 0 0
me@host:/ /home/ada/with\040space fuse.sshfs rw 0 0
drive /mnt/c 9p rw 0 0
share /srv cifs rw 0 0
/dev/sdc1 /srv ext4 rw 0 0
x /data fuseblk rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/a.db", "ext4", False),
        ("/tmp/a.db", "tmpfs", False),
        ("/home/ada/a.db", "nfs4", True),
        ("/home/local/a.db", "xfs", False),
        ("/home/localities/a.db", "nfs4", True),
        ("/home/ada/with space/a.db", "fuse.sshfs", True),
        ("/mnt/c/a.db", "9p", True),
        ("/srv/a.db", "ext4", False),
        ("/data/a.db", "fuseblk", False),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str, network: bool) -> None:
    assert kind_of(Path(path), MOUNTS) == kind
    assert is_network(kind) == network


def test_a_network_file_system_is_refused_with_the_choice(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    mounts = f"server:/export {real} nfs rw 0 0"
    with pytest.raises(UnsupportedError, match="nfs") as caught:
        refuse_network(tmp_path / "link" / "a.db", mounts)
    assert "postgresql://" in caught.value.next_act
    refuse_network(tmp_path / "a.db", mounts)
