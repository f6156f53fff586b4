"""Making events that every store can carry.

Lone surrogates, NaN and the infinities are legal in a Python process and refused by UTF-8, by JSON or by a database
later, when the gate already waits. They are replaced here, once, when the event is made, and the event says where:

    lone surrogate      U+FFFD (two halves that make a pair are joined to the character they mean)
    NaN, infinities     the strings "NaN", "Infinity", "-Infinity"
    keys that are not text, bytes …   refused: a bug of the caller, not data

Text that merely looks like an escape (a literal backslash and a u) is text and stays untouched, as does NUL.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Callable
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
        where = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name != key:
            found.append(where)
        out[name] = clean_json(item, where, found)
    return out


def make(cls: type[E], seq: int, time: int, **fields: Any) -> tuple[E, bytes]:
    """Make one event and its canonical bytes; normalise it where it needs that.

    JSON of unknown shape is read back from the bytes, so the event shares none of it with whoever made it.

    Raises:
        IllegalEventError: a field is missing, has the wrong type, or is not JSON.
    """
    try:
        event = cls(seq, time, **fields)
        encoded = _encode(event)
        opaque = _opaque(cls)
        if not opaque:
            return event, encoded
        if all(_is_plain(fields.get(name)) for name in opaque):
            return _reader(cls)(encoded), encoded
    except UnicodeEncodeError:
        pass
    except (TypeError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
    return _remake(cls, event)


@functools.cache
def _opaque(cls: type[Event]) -> tuple[str, ...]:
    """The fields that may hold JSON of unknown shape; of a plugin's type all, for those are not looked into.

    The encoder writes much that is not JSON as if it were (NaN as null, a number that is a key as text), so what no
    type vouches for has to be looked at.
    """
    own = cls.__module__ == Event.__module__
    return tuple(name for name, hint in typing.get_type_hints(cls).items() if not own or _holds_json(hint))


def _holds_json(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return any(_holds_json(inner) for inner in typing.get_type_hints(hint).values())
    return hint is Json or any(_holds_json(part) for part in typing.get_args(hint))


@functools.cache
def _reader(cls: type[E]) -> Callable[[bytes], E]:
    return msgspec.json.Decoder(cls).decode


def _is_plain(value: Any) -> bool:
    """Whether `value` is JSON as it stands, so that nothing of it changes on its way through bytes."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict:
        return all(map(_is_text, value)) and all(map(_is_plain, value.values()))
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    if kind is float:
        return math.isfinite(value)
    return isinstance(value, msgspec.Struct) and _is_plain(msgspec.structs.astuple(value))


def _is_text(key: Any) -> bool:
    return type(key) is str


_SCALARS = frozenset({str, int, bool, type(None)})


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
    except (TypeError, RecursionError, msgspec.ValidationError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
    whole: dict[str, Any] = {**cleaned, "seq": event.seq, "time": event.time, "type": cls.type_name()}
    if found:
        whole["normalised"] = sorted(found)
    try:
        remade = msgspec.convert(whole, cls)
        return remade, _encode(remade)
    except (msgspec.ValidationError, ValueError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
