"""Sessions in PostgreSQL, for logs that many hosts share: `postgresql://…`, through psycopg (the extra `postgres`).

Reading path: `address` (the URL), `migrations` (the tables), `statements` (all that is said to the server), `rows`
(entries to rows and back), `link` (connections that come back), `claims` (who may write), `rounds` (group commit),
`keeper` (the leases), `handle` and `store` (the contract of `stores.base` over those).
"""

from fencepost.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
