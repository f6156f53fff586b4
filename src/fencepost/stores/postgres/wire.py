"""The one statement that every gate waits for, said to libpq without the driver's adaptation of arguments.

Why: that adaptation costs more than the append. Measured for its nine arguments, 160 µs of one thread for one session,
2.5 ms for 256 of them; this way 30 and 130 µs. Everything else goes through the driver as usual.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from psycopg import Connection, pq
from psycopg.errors import error_from_result
from psycopg.rows import TupleRow

_BYTEA = 17
"""The type of the elements, by its number, as an array of them says it in its header."""

_HEADER = struct.Struct("!iiiii")
_TEXT, _BINARY = pq.Format.TEXT, pq.Format.BINARY


def numbers(values: Iterable[int]) -> bytes:
    """An array of integers in PostgreSQL's own text."""
    return b"{%s}" % ",".join(map(str, values)).encode()


def byteas(values: Sequence[bytes]) -> bytes:
    """An array of byte strings in PostgreSQL's binary form."""
    parts = [part for value in values for part in (len(value).to_bytes(4, "big"), value)]
    return b"".join([_HEADER.pack(1, 0, _BYTEA, len(values), 1), *parts])


def ask(server: Connection[TupleRow], statement: bytes, texts: Sequence[bytes], blob: bytes) -> list[int]:
    """The array of integers that a statement gives.

    Args:
        server: a connection outside any transaction.
        statement: one, with `$1` and so on for its arguments.
        texts: its arguments in text.
        blob: its last argument, in binary.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    result = server.pgconn.exec_params(statement, [*texts, blob], None, [*[_TEXT] * len(texts), _BINARY], _TEXT)
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise error_from_result(result)
    found = (result.get_value(0, 0) or b"").strip(b"{}")
    return [int(number) for number in found.split(b",")] if found else []
