"""The published schema is what the types say, and what a server says fits it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

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
            jsonschema_rs.validator_for({**part, "$defs": made["$defs"]})


def test_parameters_that_nobody_knows_are_refused_by_it() -> None:
    made = schema()
    queue = {**made["methods"]["prompt/queue"]["params"], "$defs": made["$defs"]}
    jsonschema_rs.validate(queue, {"session": "s", "text": "t"})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(queue, {"session": "s", "text": "t", "other": 1})
