"""Arguments of tools: the schema that the model is told, and the check before a call is admitted.

`parameters_of` makes a plain object schema from a struct type; `validate` says in one sentence what is wrong with
given arguments: where, what stands there, what was expected. Compiled schemas are kept, by their content.

What this module refuses to be: forgiving. Nothing is coerced: what is checked here is what the log says was called.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.core.events import Json
from fencepost.runtime.tools import Tool

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

SHOWN_PROBLEMS = 3
"""Problems that one sentence names at most."""
SHOWN_CHARS = 80
"""Characters of a wrong value that are repeated to the model at most."""

_REF = "#/$defs/{name}"


# --- making -----------------------------------------------------------------------------------------------------


def parameters_of(arguments: type[msgspec.Struct]) -> dict[str, Json]:
    """The object schema of a struct type, with what it refers to under `$defs`.

    Raises:
        TypeError: a field has a type that JSON Schema, or msgspec, cannot express.
    """
    (top,), parts = msgspec.json.schema_components([arguments], schema_hook=_schema_hook, ref_template=_REF)
    name = str(top["$ref"]).rpartition("/")[2]
    schema: dict[str, Json] = dict(parts.pop(name))
    schema.pop("title", None)
    if parts:
        schema["$defs"] = parts
    return schema


def parse(arguments: dict[str, Any], into: type[msgspec.Struct]) -> msgspec.Struct:
    """Arguments as the real types that a function declares; strict.

    Raises:
        msgspec.ValidationError: they do not fit.
    """
    return msgspec.convert(arguments, into, dec_hook=_dec_hook, str_keys=True)


def _schema_hook(kind: type) -> dict[str, Json]:
    if kind is Path:
        return {"type": "string"}
    raise NotImplementedError(f"{kind} has no JSON form")


def _dec_hook(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(f"{kind} has no JSON form")


# --- checking ---------------------------------------------------------------------------------------------------


def validate(tool: Tool, arguments: dict[str, Any]) -> str | None:
    """What is wrong with `arguments` for `tool`, in one sentence for the model; None if they fit."""
    try:
        problems = _compiled(msgspec.json.encode(tool.spec.parameters)).iter_errors(arguments)
        found = [_sentence(problem, tool.spec.parameters) for problem, _ in zip(problems, range(20), strict=False)]
    except ValueError as error:
        return f"the schema of tool {tool.name!r} is itself broken: {str(error).splitlines()[0]}"
    if found:
        more = f"; and {len(found) - SHOWN_PROBLEMS} more" if len(found) > SHOWN_PROBLEMS else ""
        return "; ".join(found[:SHOWN_PROBLEMS]) + more
    if tool.parse is None:
        return None
    try:
        tool.parse(arguments)
    except msgspec.ValidationError as error:
        return str(error)
    return None


@functools.lru_cache(maxsize=1024)
def _compiled(schema: bytes) -> Validator:
    """Compiled once per schema. `offline`: a schema from elsewhere must not make us fetch anything."""
    from jsonschema_rs import validator_for

    return validator_for(msgspec.json.decode(schema), offline=True)


def _sentence(problem: ValidationError, schema: dict[str, Json]) -> str:
    where = _place(problem.instance_path)
    kind = problem.kind.as_dict()
    holder = _at(schema, problem.schema_path[:-1])
    if problem.kind.name == "required":
        name = kind["property"]
        wanted = _expected(_at(holder, ["properties", name]), schema)
        return f"{_member(where, name)} is missing; expected {wanted}"
    if problem.kind.name == "additionalProperties":
        names = ", ".join(_show(name) for name in kind["unexpected"])
        known = ", ".join(_properties(holder)) or "none"
        return f"{where or 'arguments'}: unknown {names}; there are: {known}"
    return f"{where or 'arguments'} is {_show(problem.instance)}; expected {_expected(holder, schema)}"


def _place(path: Sequence[str | int]) -> str:
    where = ""
    for part in path:
        where = f"{where}[{part}]" if isinstance(part, int) else _member(where, part)
    return where


def _member(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _show(value: object) -> str:
    text = msgspec.json.encode(value, enc_hook=repr).decode() if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"


def _at(schema: Any, path: Sequence[str | int]) -> Any:
    """What stands at a path of a schema; an empty schema where nothing does."""
    try:
        for part in path:
            schema = schema[part]
    except (KeyError, IndexError, TypeError):
        return {}
    return schema


def _properties(schema: Any) -> list[str]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return list(found) if isinstance(found, dict) else []


_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matching {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "without repetition",
}


def _expected(schema: Any, root: dict[str, Json], depth: int = 0) -> str:
    """What a schema asks for, in a few words."""
    if not isinstance(schema, dict) or not schema or depth > 3:
        return "another value"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _expected(_at(root, reference.removeprefix("#/").split("/")), root, depth + 1)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(_expected(one, root, depth + 1) for one in schema[choice])
    if "enum" in schema:
        return "one of " + ", ".join(_show(value) for value in schema["enum"])
    if "const" in schema:
        return _show(schema["const"])
    kinds = schema.get("type", "a value")
    words = [" or ".join(kinds) if isinstance(kinds, list) else str(kinds)]
    if _properties(schema):
        words.append("with " + ", ".join(_properties(schema)))
    words += [text.format(schema[limit]) for limit, text in _LIMITS.items() if limit in schema]
    return ", ".join(words)
