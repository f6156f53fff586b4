"""Logs of older releases, read as if this one had written them: one pure step from each format to the next.

Rules:
    1. A step takes one record of its format and gives the same fact as a record of the next one. It sees a JSON object,
       not an event: the types of that time are gone.
    2. A record stays one record, with its `seq`: logs stay dense, and what refers to a seq stays right.
    3. A step is never changed after its release, and a log of every released format stays among the tests' fixtures.
    4. Reading upgrades in memory only. A log is rewritten when it is continued, and its original is kept beside it.

Format 1 is the first that was released, so there is no step yet. A new format adds one here, under the number of the
format that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from fencepost.core.codec import FORMAT, NotARecordError
from fencepost.core.events import Json

Record: TypeAlias = "dict[str, Json]"


def _unchanged(record: Record) -> Record:
    return record


class Step(msgspec.Struct, frozen=True):
    """From one format to the next; what is left out did not change."""

    header: Callable[[Record], Record] = _unchanged
    event: Callable[[Record], Record] = _unchanged


Chain: TypeAlias = Mapping[int, Step]
"""The steps that are known, each under the format that it reads."""

CHAIN: Chain = {}


def leads_here(number: int, chain: Chain = CHAIN) -> bool:
    """Whether a log of this format can be read."""
    return number <= FORMAT and all(older in chain for older in range(number, FORMAT))


def upgraded_header(line: bytes, number: int, chain: Chain = CHAIN) -> bytes:
    """The header of a log of an older format, as this release writes it, its format included.

    Raises:
        NotARecordError: the bytes are no JSON object.
    """
    record = _record(line)
    for older in range(number, FORMAT):
        record = chain[older].header(record)
    return msgspec.json.encode({**record, "format": FORMAT})


def upgraded_event(line: bytes, number: int, chain: Chain = CHAIN) -> bytes:
    """One event of a log of an older format, as this release writes it.

    Raises:
        NotARecordError: the bytes are no JSON object.
    """
    record = _record(line)
    for older in range(number, FORMAT):
        record = chain[older].event(record)
    return msgspec.json.encode(record)


def _record(line: bytes) -> Record:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotARecordError(str(error)) from None


_decode = msgspec.json.Decoder(dict[str, Json]).decode
