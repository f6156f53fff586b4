"""`@tool`: what a function becomes, what is refused, and what is said about wrong arguments."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from fencepost.core.events import ToolSpec
from fencepost.errors import UsageError
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.schema import validate
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext, Tool


@dataclasses.dataclass
class Place:
    city: str
    floor: int = 0


class Options(TypedDict, total=False):
    loud: bool


class Item(msgspec.Struct):
    name: str
    inside: list[Item] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@tool
async def send(
    to: str,
    items: list[Item],
    place: Place | None = None,
    options: Options = {},  # noqa: B006 - shows that each call gets its own
    tone: Literal["kind", "plain"] = "plain",
    colour: Colour = Colour.RED,
    times: Annotated[int, msgspec.Meta(ge=1, description="how often")] = 1,
    where: Path = Path("out"),
) -> str:
    """Send items.

    They go by mail.

    Args:
        to: the receiver's
            address
        times: not used, the annotation says it

    Returns:
        A receipt.
    """
    options["loud"] = True
    return f"{to} {[item.name for item in items]} {place} {tone} {colour} {times} {where!r}"


@tool(effect="read", name="look_up", timeout=2.5, parallel=False)
def look(context: CallContext, key: str, /, *, depth: int | None = None) -> dict[str, Any]:
    """Look something up."""
    return {"key": key, "depth": depth, "call": context.call_id}


@tool
async def with_context(text: str, ctx: CallContext) -> str:
    return f"{ctx.session_id}: {text}"


def context(tmp_path: Path) -> CallContext:
    return CallContext("c1", "s1", tmp_path, CancelSignal(), lambda text: None, tmp_path / "files")


def run(made: Tool, tmp_path: Path, arguments: dict[str, Any]) -> Any:
    async def go() -> Any:
        assert made.body is not None
        return await made.body(context(tmp_path), arguments)

    return asyncio.run(go())


# --- what a function becomes ------------------------------------------------------------------------------------


def test_the_schema_is_a_plain_object_with_every_kind_of_annotation() -> None:
    schema = send.spec.parameters
    assert schema["type"] == "object"
    assert schema["required"] == ["to", "items"]
    assert schema["additionalProperties"] is False
    assert "$ref" not in schema
    assert "title" not in schema
    properties: Any = schema["properties"]
    assert properties["to"] == {"type": "string", "description": "the receiver's address"}
    assert properties["items"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert properties["place"]["default"] is None
    assert properties["options"]["default"] == {}
    assert properties["tone"] == {"enum": ["kind", "plain"], "default": "plain"}
    assert properties["colour"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert properties["times"] == {"type": "integer", "minimum": 1, "default": 1, "description": "how often"}
    assert properties["where"] == {"type": "string", "default": "out"}
    assert set(schema["$defs"]) == {"Item", "Place", "Options", "Colour"}  # type: ignore[arg-type]


def test_the_description_is_the_text_before_the_first_section() -> None:
    assert send.spec.description == "Send items.\n\nThey go by mail."


def test_the_schema_survives_the_log() -> None:
    again = msgspec.json.decode(msgspec.json.encode(send.spec), type=ToolSpec)
    assert again == send.spec


def test_numpy_and_sphinx_docstrings_describe_arguments_too() -> None:
    def numpy(a: int, b: int) -> None:
        """Add.

        Parameters
        ----------
        a : int
            the first
        b
            the second
        """

    def sphinx(a: int, b: int) -> None:
        """Add.

        :param a: the first
        :param int b: the second
        """

    for function in (numpy, sphinx):
        spec = tool(function).spec
        properties: Any = spec.parameters["properties"]
        assert spec.description == "Add."
        assert [properties[name]["description"] for name in "ab"] == ["the first", "the second"]


def test_a_docstring_with_a_colon_is_not_taken_for_sections() -> None:
    @tool
    def note(text: str) -> None:
        """Keep a note: one line.

        For example: buy milk.
        """

    assert note.spec.description == "Keep a note: one line.\n\nFor example: buy milk."


def test_the_function_gets_real_types_and_fresh_defaults(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"to": "ada", "items": [{"name": "x", "inside": [{"name": "y"}]}], "colour": "blue"}
    arguments["place"] = {"city": "Turin"}
    for _ in range(2):
        said = run(send, tmp_path, arguments)
        assert said == "ada ['x'] Place(city='Turin', floor=0) plain Colour.BLUE 1 PosixPath('out')"
    properties: Any = send.spec.parameters["properties"]
    assert properties["options"]["default"] == {}


def test_a_plain_function_is_for_a_thread_and_an_async_one_for_the_loop(tmp_path: Path) -> None:
    assert look.body is None
    assert send.thread is None
    assert look.thread is not None
    assert look.thread(context(tmp_path), {"key": "k", "depth": 3}) == {"key": "k", "depth": 3, "call": "c1"}


def test_what_is_said_about_a_tool_is_kept() -> None:
    assert (look.name, look.effect, look.timeout, look.overlaps({})) == ("look_up", "read", 2.5, False)
    assert (send.name, send.effect, send.timeout, send.overlaps({})) == ("send", "write", None, False)
    assert tool(effect="read")(lambda_free).overlaps({})


def lambda_free(a: str) -> str:
    return a


def test_the_context_is_injected_and_not_in_the_schema(tmp_path: Path) -> None:
    assert list(with_context.spec.parameters["properties"]) == ["text"]  # type: ignore[arg-type]
    assert run(with_context, tmp_path, {"text": "hi"}) == "s1: hi"
    assert validate(with_context, {"text": "hi", "ctx": 1}) is not None


def test_methods_partials_and_callable_objects_become_tools(tmp_path: Path) -> None:
    class Desk:
        async def __call__(self, a: int) -> int:
            return a + 1

        async def ask(self, a: int) -> int:
            return a + 2

    async def add(a: int, b: int) -> int:
        return a + b

    assert run(tool(name="desk")(Desk()), tmp_path, {"a": 1}) == 2
    assert run(tool(Desk().ask), tmp_path, {"a": 1}) == 3
    assert run(tool(name="add")(functools.partial(add, 10)), tmp_path, {"b": 1}) == 11


def test_the_function_stays_callable_without_a_runtime() -> None:
    assert look.function is not None
    assert send.function is not None
    assert asyncio.run(send.function("ada", [])).startswith("ada")


# --- what is refused --------------------------------------------------------------------------------------------


def untyped(a) -> None: ...  # type: ignore[no-untyped-def]
def starred(*a: int) -> None: ...
def keywords(**a: int) -> None: ...
def odd(a: complex) -> None: ...
def two_dicts(a: Place | dict[str, int]) -> None: ...
def nowhere(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def gives_pieces(a: int) -> Any:
    yield a


class Holder:
    def method(self, a: int) -> None: ...


REFUSED = [
    (untyped, {}, "'a' has no annotation"),
    (starred, {}, "*a: 'int' has no schema"),
    (keywords, {}, "**a: 'int' has no schema"),
    (odd, {}, "complex"),
    (two_dicts, {}, "Place | dict"),
    (nowhere, {}, "'Missing' is not defined"),
    (gives_pieces, {}, "generator"),
    (Holder.method, {}, "'self' has no annotation"),
    (lambda_free, {"effect": "delete"}, "unknown effect 'delete'"),
    (lambda_free, {"timeout": 0}, "timeout is 0"),
    (lambda_free, {"name": "with space"}, "1 to 64"),
    (lambda: None, {}, "1 to 64"),
    (3, {}, "int is not a function"),
]


@pytest.mark.parametrize(("function", "options", "fault"), REFUSED, ids=[fault for _, _, fault in REFUSED])
def test_what_cannot_become_a_tool_is_refused_with_name_fault_and_act(function: Any, options: Any, fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        tool(**options)(function)
    assert fault in str(caught.value)
    called = options.get("name") or getattr(function, "__name__", repr(function))
    assert f"@tool on {called}" in str(caught.value)
    assert caught.value.next_act


def test_a_tool_has_one_way_to_run() -> None:
    with pytest.raises(UsageError, match="has none"):
        Tool(spec=send.spec)
    with pytest.raises(UsageError, match="has two"):
        Tool(spec=send.spec, body=send.body, thread=look.thread)


# --- arguments --------------------------------------------------------------------------------------------------

WRONG = [
    ({"items": []}, "to is missing; expected string"),
    ({"to": 3, "items": []}, "to is 3; expected string"),
    ({"to": "a", "items": [{"name": "x"}, {"name": 4}]}, "items[1].name is 4; expected string"),
    ({"to": "a", "items": [{}]}, "items[0].name is missing; expected string"),
    ({"to": "a", "items": [], "times": 0}, "times is 0; expected integer, at least 1"),
    ({"to": "a", "items": [], "tone": "rude"}, 'tone is "rude"; expected one of "kind", "plain"'),
    ({"to": "a", "items": [], "colour": "green"}, 'colour is "green"; expected one of "blue", "red"'),
    ({"to": "a", "items": [], "place": 4}, "place is 4; expected object, with city, floor or null"),
    (
        {"to": "a", "items": [], "cc": "b"},
        'arguments: unknown "cc"; there are: to, items, place, options, tone, colour, times, where',
    ),
    ({"to": ["x" * 500], "items": []}, 'to is ["' + "x" * 78 + "… (504 characters); expected string"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG, ids=[sentence[:40] for _, sentence in WRONG])
def test_wrong_arguments_are_told_by_path_value_and_expectation(arguments: dict[str, Any], sentence: str) -> None:
    assert validate(send, arguments) == sentence


def test_several_problems_are_told_together_and_bounded() -> None:
    said = validate(send, {"to": 1, "tone": 2, "times": 3.5, "colour": 4, "place": 5})
    assert said is not None
    assert said.count("; expected") == 3
    assert said.endswith("; and 3 more")


def test_right_arguments_pass() -> None:
    assert validate(send, {"to": "a", "items": [{"name": "x"}], "place": None, "options": {"loud": True}}) is None


def test_what_a_schema_cannot_say_is_checked_before_admission_too() -> None:
    @tool
    def when(keys: dict[int, str]) -> None:
        """Remember."""

    assert validate(when, {"keys": {"3": "x"}}) is None
    said = validate(when, {"keys": {"three": "x"}})
    assert said is not None
    assert "int" in said


def foreign(parameters: Any) -> Tool:
    async def body(context: CallContext, arguments: dict[str, Any]) -> str:
        return ""

    return Tool(spec=ToolSpec("foreign", "", parameters), body=body)


@pytest.mark.parametrize(
    "parameters",
    [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/schema"}, {"$ref": "#/$defs/none"}],
    ids=["bad type", "remote reference", "dangling reference"],
)
def test_a_broken_schema_from_elsewhere_is_a_sentence_not_a_traceback(parameters: Any) -> None:
    said = validate(foreign(parameters), {"a": 1})
    assert said is not None
    assert said.startswith("the schema of tool 'foreign' is itself broken: ")
    assert "\n" not in said


def test_a_schema_from_elsewhere_is_checked_like_ours() -> None:
    made = foreign({"type": "object", "properties": {"n": {"oneOf": [{"type": "integer"}, {"const": "all"}]}}})
    assert validate(made, {"n": 4, "other": True}) is None
    assert validate(made, {"n": "some"}) == 'n is "some"; expected integer or "all"'


def test_importing_the_tool_modules_loads_nothing_heavy() -> None:
    code = (
        "import sys, fencepost.runtime.toolmaker, fencepost.runtime.schema\n"
        "print([name for name in ('griffe', 'jsonschema_rs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
