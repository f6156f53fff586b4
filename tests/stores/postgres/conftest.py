"""Servers for the tests of this directory."""

from tests.stores.postgres.fixtures import cluster, private_url, server, sql, url

__all__ = ["cluster", "private_url", "server", "sql", "url"]
