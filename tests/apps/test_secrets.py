"""Secrets by pattern: what is hidden, what is not, and that JSON stays JSON however deep it is packed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.apps.cli.secrets import HIDDEN, Secrets
from fencepost.errors import UsageError

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk=\nAAAA\n-----END OPENSSH PRIVATE KEY-----"

SECRET = [
    ("model_key", "sk-proj-Abc123_def456-ghi789"),
    ("model_key", "sk-ant-api03-abcdefghijklmnop"),
    ("github_token", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("github_token", "github_pat_11ABCDEFG0abcdefghijkl"),
    ("aws_key", "AKIAIOSFODNN7EXAMPLE"),
    ("slack_token", "xoxb-123456789012-abcdefghij"),
    ("google_key", "AIzaSyA-1234567890abcdefghijklmnopqrstu"),
    ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
    ("private_key", PEM),
]
"""Whole words, each a secret by itself."""

WITHIN = [
    ("Authorization: Bearer abc123def456ghi", "abc123def456ghi"),
    ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("postgresql://ada:hunter2@db.example/x", "hunter2"),
    ("https://u:p@ss:word@host/path", "p@ss:word"),
    ("export STRIPE_SECRET='two words'", "two words"),
    ('DB_PASSWORD = "a b\\" c"', 'a b\\" c'),
    ("MY_KEY_ID=deadbeef\nOTHER=fine", "deadbeef"),
    ("password: hunter2", "hunter2"),
    ('said {"api_key": "hunter2", …', "hunter2"),
    ('said {\\"token\\": \\"hunter2\\", …', "hunter2"),
    ("mysql --password hunter2 -u root", "hunter2"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow", "MIIEow"),
]
"""A text, and what may not be left of it."""

HARMLESS = [
    "the key to it all is in the table",
    "MAX_TOKENS=100",
    "a task-force and a risk-averse desk",
    "https://example.org:8080/path?q=1",
    "mail ada@example.org",
    "keyboard: qwerty",
    '{"input_tokens": 5, "monkey": "see", "keys": ["a"]}',
    "git commit -m 'sk-short'",
]


@pytest.mark.parametrize(("name", "secret"), SECRET)
def test_a_secret_is_hidden_wherever_it_stands(name: str, secret: str) -> None:
    secrets = Secrets()
    for text in (secret, f"it is {secret} now", f"({secret})\n"):
        assert secret not in secrets.text(text)
    assert secrets.hidden[name] == 3


@pytest.mark.parametrize(("text", "secret"), WITHIN)
def test_what_belongs_to_a_name_or_a_place_is_hidden(text: str, secret: str) -> None:
    secrets = Secrets()
    clean = secrets.text(text)
    assert secret not in clean
    assert HIDDEN in clean
    assert secrets.hidden.total() == 1


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_to_the_letter(text: str) -> None:
    secrets = Secrets()
    assert secrets.text(text) == text
    assert not secrets.hidden


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_json_in_json_stays_json(depth: int) -> None:
    text = json.dumps({"url": 'x "y"', "key": f"é\n{SECRET[0][1]}", "password": "hunter2", "n": 1.10, "big": 2**70})
    for _ in range(depth - 1):
        text = json.dumps({"inner": text, "list": [1, None, True]})
    clean = Secrets().text(text)
    assert "hunter2" not in clean
    assert SECRET[0][1] not in clean
    value = json.loads(clean)
    for _ in range(depth - 1):
        value = json.loads(value["inner"])
    assert value == {"url": 'x "y"', "key": f"é\n{HIDDEN}", "password": HIDDEN, "n": 1.10, "big": 2**70}


def test_an_escape_hides_nothing_from_us() -> None:
    text = '{"a": "\\u0073\\u006b-abcdefghijklmnop"}'
    assert json.loads(Secrets().text(text)) == {"a": HIDDEN}
    assert json.loads(Secrets().text(f"first\n{text}\nlast").split("\n")[1]) == {"a": HIDDEN}


def test_a_key_that_stands_twice_hides_nothing_from_us() -> None:
    assert "hunter2" not in Secrets().text('{"password": "hunter2", "password": "x"}')


def test_json_without_secrets_is_not_touched() -> None:
    text = '{ "a" : 1.50,  "b": [ ] }'
    assert Secrets().text(text) == text


@given(st.data())
def test_a_secret_that_is_cut_anywhere_leaves_no_piece(data: st.DataObject) -> None:
    name, secret = data.draw(st.sampled_from(SECRET))
    text = f"say: {secret} ."
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    secrets = Secrets()
    clean = secrets.texts(pieces)
    assert len(clean) == len(pieces)
    assert "".join(clean) == f"say: {HIDDEN} ."
    assert dict(secrets.hidden) == {name: 1}


def test_own_patterns_come_first_and_may_name_the_part_that_is_secret() -> None:
    secrets = Secrets(["ACME-[0-9]{6}", "badge (?P<secret>[0-9]+)"])
    assert secrets.text("ACME-123456, badge 77") == f"{HIDDEN}, badge {HIDDEN}"
    assert dict(secrets.hidden) == {"own_1": 1, "own_2": 1}


@pytest.mark.parametrize("pattern", ["(", "x*"])
def test_a_pattern_that_is_none_is_said_with_its_number(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"\[redact\] patterns: number 2"):
        Secrets(["fine", pattern])


def test_long_texts_take_no_long_time() -> None:
    """Texts that make patterns try again at every letter. Finishing is the test."""
    for text in ("-" * 200_000, "a-" * 100_000, "A_" * 100_000, "KEY" * 60_000, "://a:" * 40_000, "eyJ" * 60_000):
        assert Secrets().text(text)
