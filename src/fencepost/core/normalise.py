"""Making events that every store can carry.

Lone surrogates, NaN and the infinities are legal in a Python process and refused by UTF-8, by JSON or by a database
later, when the gate already waits. They are replaced here, once, when the event is made, and the event says where:

    lone surrogate      U+FFFD (two halves that make a pair are joined to the character they mean)
    NaN, infinities     the strings "NaN", "Infinity", "-Infinity"
    bytes, keys that are not text, fields of a wrong type …   refused: a bug of the caller, not data

Text that merely looks like an escape (a literal backslash and a u) is text and stays untouched, as does NUL.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from fencepost.core.events import Event, Json
from fencepost.errors import IllegalEventError

E = TypeVar("E", bound=Event)

_encode = msgspec.json.Encoder().encode


def clean_text(text: str) -> str:
    """`text` with every lone surrogate replaced, and surrogate pairs joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_clean(text: str) -> bool:
    """Whether UTF-8 can carry `text`."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_json(value: Any, path: str, found: list[str]) -> Json:
    """A copy of `value` that is JSON, with the JSON pointers of all replaced places added to `found`.

    Raises:
        IllegalEventError: `value` holds something that is not JSON at all.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _clean_str(value, path, found)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        found.append(path)
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, list | tuple):
        return [clean_json(item, f"{path}/{index}", found) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return _clean_object(value, path, found)
    raise IllegalEventError(f"{path or '/'}: {type(value).__name__} is not JSON")


def _clean_str(text: str, path: str, found: list[str]) -> str:
    if is_clean(text):
        return text
    found.append(path)
    return clean_text(text)


def _clean_object(value: dict[Any, Any], path: str, found: list[str]) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise IllegalEventError(f"{path or '/'}: the key {key!r} is not text")
        name = key if is_clean(key) else clean_text(key)
        while name != key and (name in value or name in out):
            name += "\ufffd"  # two keys may not become one: a value would be lost
        where = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name != key:
            found.append(where)
        out[name] = clean_json(item, where, found)
    return out


def make(cls: type[E], seq: int, time: int, fields: Mapping[str, Any]) -> tuple[E, bytes]:
    """Make one event and its canonical bytes; normalise it where it needs that.

    What comes back is what a reader of those bytes gets: so an event that a reader would refuse is never made, and it
    shares nothing with whoever made it. Where the two differ, the encoder has written something that is not JSON as
    if it were (NaN as null, bytes as text, a number that is a key as text), and each value has to be looked at.

    Raises:
        IllegalEventError: a field is missing, has the wrong type, or is not JSON.
    """
    try:
        event = cls(seq, time, **fields)
        encoded = _encode(event)
        read = _reader(cls)(encoded)
        if read == event:
            return read, encoded
    except UnicodeEncodeError:
        pass
    except (TypeError, ValueError, RecursionError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
    return _remake(cls, event)


@functools.cache
def _reader(cls: type[E]) -> Callable[[bytes], E]:
    return msgspec.json.Decoder(cls).decode


def _remake(cls: type[E], event: E) -> tuple[E, bytes]:
    """The slow way: through plain JSON values, with every leaf looked at."""
    try:
        plain = {
            name: msgspec.to_builtins(getattr(event, name), builtin_types=(bytes, bytearray, memoryview))
            for name in cls.__struct_fields__
            if name not in {"seq", "time", "normalised"}
        }
        found: list[str] = []
        cleaned: dict[str, Json] = {name: clean_json(value, f"/{name}", found) for name, value in plain.items()}
    except (TypeError, RecursionError, msgspec.ValidationError, IllegalEventError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
    whole: dict[str, Any] = {**cleaned, "seq": event.seq, "time": event.time, "type": cls.type_name()}
    if found:
        whole["normalised"] = sorted(found)
    try:
        remade = msgspec.convert(whole, cls)
        return remade, _encode(remade)
    except (msgspec.ValidationError, ValueError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
