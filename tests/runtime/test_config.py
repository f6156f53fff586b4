"""`fencepost.toml`: where it is looked for, what it may say, and how its errors name the place."""

import pytest

from fencepost.errors import ConfigError
from fencepost.runtime.config import FILE, Config, config_home, data_home, default_store, load, parse

WHOLE = b"""
model = "openai:gpt-5"
store = "jsonl:./sessions"
approve = "ask"
system = "You work carefully."
plugins = ["checkpoint", "retry"]

[settings]
temperature = 0.2

[plugin.retry]
attempts = 3
"""


def test_a_whole_file(tmp_path):
    assert parse(WHOLE, tmp_path / FILE) == Config(
        model="openai:gpt-5",
        store="jsonl:./sessions",
        approve="ask",
        system="You work carefully.",
        plugins=["checkpoint", "retry"],
        settings={"temperature": 0.2},
        plugin={"retry": {"attempts": 3}},
    )


def test_an_empty_file_says_nothing(tmp_path):
    assert parse(b"", tmp_path / FILE) == Config()


def test_the_working_directory_comes_before_the_users_own(tmp_path):
    here, home = tmp_path / "here", tmp_path / "home"
    (home / "fencepost").mkdir(parents=True)
    here.mkdir()
    environ = {"XDG_CONFIG_HOME": str(home)}
    assert load(here, environ).path is None
    assert load(here, environ).config == Config()
    (home / "fencepost" / FILE).write_text('model = "script:a"')
    assert load(here, environ).config.model == "script:a"
    (here / FILE).write_text('model = "script:b"')
    loaded = load(here, environ)
    assert (loaded.config.model, loaded.path) == ("script:b", here / FILE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"modle = 'x'", "unknown field `modle`"),
        (b"plugins = 'retry'", r"Expected `array \| null`, got `str` - at `\$.plugins`"),
        (b"[plugin]\nretry = 3", r"at `\$.plugin\[\.\.\.\]`"),
        (b"model = ", "end of document"),
        (b"model = 'a'\nmodel = 'b'", "Cannot overwrite a value .at "),
        (b"system = '\xff'", "not UTF-8 .byte 10."),
        (b"[settings]\nsince = 2026-11-30", r"\[settings\] /since: date is not JSON"),
        (b"[plugin.retry]\nbase = inf", r"\[plugin.retry\] /base is a number that JSON cannot carry"),
        (b"[settings]\nstop = ['a', nan]", r"\[settings\] /stop/1"),
    ],
)
def test_what_is_wrong_names_the_file_and_the_place(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        parse(text, tmp_path / FILE)
    assert str(tmp_path / FILE) in str(caught.value)


def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)})


def test_where_things_are_kept():
    assert str(config_home({"HOME": "/home/ada"})) == "/home/ada/.config/fencepost"
    assert str(data_home({"HOME": "/home/ada"})) == "/home/ada/.local/share/fencepost"
    assert str(data_home({"HOME": "/home/ada", "XDG_DATA_HOME": "/data"})) == "/data/fencepost"
    assert default_store({"XDG_DATA_HOME": "/data"}) == "jsonl:/data/fencepost/sessions"
