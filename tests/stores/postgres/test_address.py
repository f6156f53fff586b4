"""The URL: what is libpq's, what is ours, and that no secret leaves it in text."""

from __future__ import annotations

import asyncio

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.stores.postgres.servers import Cluster, free_port
from tests.stores.sample import header

from fencepost.errors import FencepostError, MediumError, UsageError
from fencepost.stores.postgres import PostgresStore
from fencepost.stores.postgres.address import Address
from fencepost.stores.urls import open_store

SECRET = "s3cr3t/ü word"
QUOTED = "s3cr3t%2F%C3%BC%20word"


def test_what_is_ours_is_taken_out_and_the_rest_is_libpqs() -> None:
    address = Address(
        "postgres://ada@h1:1,h2:2/db?schema=logs&sslmode=require&lease=2.5&target_session_attrs=read-write"
    )
    params = conninfo_to_dict(address.conninfo)
    assert (address.schema, address.lease) == ("logs", 2.5)
    assert {name: params[name] for name in ("user", "host", "port", "dbname", "sslmode", "target_session_attrs")} == {
        "user": "ada",
        "host": "h1,h2",
        "port": "1,2",
        "dbname": "db",
        "sslmode": "require",
        "target_session_attrs": "read-write",
    }
    assert "schema" not in params
    assert "lease" not in params


def test_a_url_says_nothing_of_itself_then_the_defaults_hold() -> None:
    address = Address("postgresql://")
    assert (address.schema, address.lease) == ("fencepost", 30.0)
    assert conninfo_to_dict(address.conninfo)["connect_timeout"] == "10"


def test_the_environment_may_be_less_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    assert "connect_timeout" not in conninfo_to_dict(Address("postgresql://h/db").conninfo)
    assert conninfo_to_dict(Address("postgresql://h/db?connect_timeout=4").conninfo)["connect_timeout"] == "4"


def test_a_service_file_decides_by_itself() -> None:
    assert set(conninfo_to_dict(Address("postgresql://?service=logs").conninfo)) == {"service", "client_encoding"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:db",
        "postgresql://h/db?schema=",
        "postgresql://h/db?schema=Logs",
        "postgresql://h/db?schema=a%22b",
        "postgresql://h/db?schema=pg_logs",
        "postgresql://h/db?schema=information_schema",
        "postgresql://h/db?schema=" + "x" * 64,
        "postgresql://h/db?lease=0",
        "postgresql://h/db?lease=nan",
        "postgresql://h/db?lease=soon",
        "postgresql://h/db?colour=red",
        "postgresql://[::1/db",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_touched(url: str) -> None:
    with pytest.raises(UsageError):
        open_store(url)


def test_both_schemes_open_the_store() -> None:
    for scheme in ("postgres", "postgresql"):
        store = open_store(f"{scheme}://ada@h/db?schema=logs")
        assert isinstance(store, PostgresStore)
        assert store.url == "postgresql://ada@h/db?schema=logs"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{QUOTED}@127.0.0.1:{{port}}/db",
        f"postgresql://ada@127.0.0.1:{{port}}/db?password={QUOTED}&sslpassword={QUOTED}",
    ],
)
def test_a_password_shows_nowhere(url: str) -> None:
    store = open_store(url.format(port=free_port()))

    async def scenario() -> list[str]:
        with pytest.raises(MediumError) as refused:
            await store.create(header())
        await store.close()
        return [str(refused.value), refused.value.explain(), repr(refused.value), str(refused.value.__cause__)]

    texts = [*asyncio.run(scenario()), store.url, repr(store), repr(Address(url.format(port=1)))]
    assert not any("s3cr3t" in text for text in texts)
    assert "***" in store.url


@pytest.mark.parametrize("url", [f"postgresql://ada:{QUOTED}%@h/db", f"postgresql://ada:{QUOTED}@h:1:2/db?sslmode=%zz"])
def test_a_password_shows_nowhere_in_a_url_that_nobody_can_read(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(url)
    assert "s3cr3t" not in refused.value.explain()
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_what_a_server_says_about_a_wrong_password_is_told_without_it(cluster: Cluster) -> None:
    with cluster.connect() as connection:
        connection.execute("CREATE ROLE ada LOGIN PASSWORD 'right'")
    rules = cluster.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all ada 127.0.0.1/32 scram-sha-256\n{before}")
    try:
        with cluster.connect() as connection:
            connection.execute("SELECT pg_reload_conf()")
        url = f"postgresql://ada:{QUOTED}@127.0.0.1:{cluster.port}/postgres"

        async def scenario() -> FencepostError:
            store = PostgresStore(url)
            with pytest.raises(MediumError, match="password authentication failed") as refused:
                await store.sessions()
            await store.close()
            return refused.value

        error = asyncio.run(scenario())
        assert "s3cr3t" not in error.explain() + repr(error.__cause__)
    finally:
        rules.write_text(before)
        with cluster.connect() as connection:
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("DROP ROLE ada")


def test_text_of_others_is_scrubbed_in_every_form_of_the_secret() -> None:
    address = Address(f"postgresql://ada:{QUOTED}@h/db")
    assert address.scrubbed(f"a {SECRET} b {QUOTED} c") == "a *** b *** c"
