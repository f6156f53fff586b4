"""Sessions in one SQLite file: for many sessions of one machine, through apsw (the extra `sqlite`).

Reading path: `schema` (the tables), `place` (the files), `connecting` (how a connection has to be), `rows` (batches to
bytes and back), `loading` and `salvage` (reading a session), `sessionlog` and `group` (entries to durable rows),
`handle` and `store` (the contract of `stores.base` over those).
"""

from fencepost.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
