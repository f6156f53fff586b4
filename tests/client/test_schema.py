"""The published schema is what the types say, and what a server says fits it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from fencepost.client import wire
from fencepost.client.schema import schema, text

PUBLISHED = Path(__file__).parents[2] / "docs" / "api.schema.json"


def test_the_published_schema_is_made_from_the_types() -> None:
    assert PUBLISHED.read_text() == text()


def test_it_is_a_schema_and_names_every_method() -> None:
    made = json.loads(text())
    assert set(made["methods"]) == set(wire.METHODS)
    for method in made["methods"].values():
        for part in method.values():
            jsonschema.Draft202012Validator.check_schema({**part, "$defs": made["$defs"]})


def test_parameters_that_nobody_knows_are_refused_by_it() -> None:
    made = schema()
    queue = {**made["methods"]["prompt/queue"]["params"], "$defs": made["$defs"]}
    jsonschema.validate({"session": "s", "text": "t"}, queue)
    wrong = jsonschema.Draft202012Validator(queue).iter_errors({"session": "s", "text": "t", "other": 1})
    assert list(wrong)
