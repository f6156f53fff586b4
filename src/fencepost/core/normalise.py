"""Making events that every store can carry.

Lone surrogates, NaN and the infinities are legal in a Python process and refused by UTF-8, by JSON or by a database
later, when the gate already waits. They are replaced here, once, when the event is made, and the event says where:

    lone surrogate      U+FFFD (two halves that make a pair are joined to the character they mean)
    NaN, infinities     the strings "NaN", "Infinity", "-Infinity"
    keys that are not text, tuples, bytes …   refused: a bug of the caller, not data

Text that merely looks like an escape (a literal backslash and a u) is text and stays untouched, as does NUL.
"""

from __future__ import annotations

import math
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


def _has_json_field(cls: type[Event]) -> bool:
    return any("Json" in str(hint) for hint in cls.__annotations__.values())


_OPAQUE: dict[type[Event], bool] = {}


def make(cls: type[E], seq: int, time: int, **fields: Any) -> tuple[E, bytes]:
    """Make one event and its canonical bytes; normalise it where it needs that.

    Raises:
        IllegalEventError: a field is missing, has the wrong type, or is not JSON.
    """
    opaque = _OPAQUE.get(cls)
    if opaque is None:
        opaque = _OPAQUE[cls] = _has_json_field(cls) or cls.__module__ != Event.__module__
    try:
        event = cls(seq, time, **fields)
        if not opaque:
            return event, _encode(event)
    except UnicodeEncodeError:
        pass
    except (TypeError, ValueError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
    return _remake(cls, event)


def _remake(cls: type[E], event: E) -> tuple[E, bytes]:
    """The slow way: through plain JSON values, with every leaf looked at."""
    try:
        plain = {
            name: msgspec.to_builtins(getattr(event, name))
            for name in cls.__struct_fields__
            if name not in {"seq", "time", "normalised"}
        }
    except (TypeError, msgspec.ValidationError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
    found: list[str] = []
    cleaned: dict[str, Json] = {name: clean_json(value, f"/{name}", found) for name, value in plain.items()}
    whole: dict[str, Any] = {**cleaned, "seq": event.seq, "time": event.time, "type": cls.type_name()}
    if found:
        whole["normalised"] = sorted(found)
    try:
        remade = msgspec.convert(whole, cls)
        return remade, _encode(remade)
    except (msgspec.ValidationError, ValueError) as error:
        raise IllegalEventError(f"{cls.type_name()}: {error}") from None
