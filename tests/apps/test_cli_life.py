"""The life of a session from a terminal: fork, copy, delete, restore, purge, compress."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.command import Command, call, tree
from tests.apps.test_cli_resume import damage, living


def lines(cli: Command, session: str, *more: str) -> list[str]:
    """What export prints, the header aside."""
    return cli.run("export", session, *more).out.splitlines()[1:]


# --- fork ----------------------------------------------------------------------------------------------------------


def test_a_fork_goes_its_own_way_and_its_parent_stays_as_it_was(cli: Command) -> None:
    cli.finished()
    before = tree(cli.store / "s1")
    made = cli.run("fork", "s1", "--to", "f1", "--json")
    assert made.record() == {"session": "f1", "parent": "s1", "forked_at": len(lines(cli, "s1")) - 1, "closed": 0}
    assert lines(cli, "f1") == lines(cli, "s1")
    cli.script({"content": "unused"}, {"content": "unused"}, {"content": "On my own."})
    assert cli.run("resume", "f1", "and now?").status == 0
    assert "On my own." in cli.run("export", "f1").out
    assert tree(cli.store / "s1") == before
    cli.run("delete", "s1")
    assert cli.run("inspect", "f1", "--json").record()["state"] == "clean"
    header = cli.run("export", "f1").records()[0]
    assert (header["parent"], header["forked_at"]) == ("s1", made.record()["forked_at"])


def test_a_fork_of_a_killed_session_closes_its_open_call(cli: Command) -> None:
    cli.killed()
    before = tree(cli.store)
    made = cli.run("fork", "s1", "--to", "f1")
    assert made.status == 0
    assert "closed" in made.out
    assert {name: data for name, data in tree(cli.store).items() if not name.startswith("f1")} == before
    (one,) = cli.run("inspect", "f1", "--json").record()["calls"]
    assert one["verdict"] == "outcome_unknown"
    assert cli.run("inspect", "s1", "--json").record()["state"] == "interrupted"


def test_a_fork_beside_a_living_owner(cli: Command) -> None:
    with living(cli, "s1"):
        made = cli.run("fork", "s1", "--to", "f1", "--json")
        assert made.status == 0, made
        (one,) = cli.run("inspect", "f1", "--json").record()["calls"]
        assert one["verdict"] == "outcome_unknown"
        assert cli.run("inspect", "s1", "--json").record()["state"] == "running"


def test_a_cut_is_an_event_or_a_turn(cli: Command) -> None:
    cli.finished()
    assert cli.run("fork", "s1", "--to", "f1", "--at", "0", "--json").record()["forked_at"] == 0
    end = len(lines(cli, "s1")) - 1
    assert cli.run("fork", "s1", "--to", "f2", "--at", "turn:1", "--json").record()["forked_at"] == end
    for at, said in (("turn:2", "it has 1 turn"), ("9999", f"0 to {end}"), ("x", "neither"), ("turn:", "neither")):
        refused = cli.run("fork", "s1", "--to", "f3", "--at", at)
        assert (refused.status, said in refused.err) == (2, True), refused
    assert cli.run("fork", "s1", "--to", "f1").status == 2
    assert {row["session"] for row in cli.run("sessions", "--json").record()} == {"s1", "f1", "f2"}


# --- copy ----------------------------------------------------------------------------------------------------------


def test_a_copy_is_the_same_to_the_byte_and_goes_on_there(cli: Command) -> None:
    cli.finished()
    other = f"jsonl:{cli.root}/other"
    before = tree(cli.store)
    made = cli.run("copy", "s1", "--to", other, "--json").record()
    assert made == {
        "session": "s1",
        "source": f"jsonl:{cli.store}",
        "target": other,
        "events": len(lines(cli, "s1")),
    }
    assert cli.run("export", "s1").out == cli.run("export", "s1", "--store", other).out
    assert tree(cli.store) == before
    again = cli.run("copy", "s1", "--to", other)
    assert (again.status, "there already" in again.err) == (2, True)
    cli.script({"content": "1"}, {"content": "2"}, {"content": "Here I am."})
    assert "Here I am." in cli.run("resume", "s1", "go on", "--store", other).out


def test_a_copy_that_cannot_be_is_said(cli: Command) -> None:
    cli.finished()
    gone = cli.run("copy", "s1", "--to", "memory:")
    assert (gone.status, "would be gone" in gone.err) == (2, True)
    damage(cli.log("s1"))
    damaged = cli.run("copy", "s1", "--to", f"jsonl:{cli.root}/other")
    assert (damaged.status, "--salvage" in damaged.err) == (5, True)
    assert not (cli.root / "other").exists()


def test_a_running_session_is_not_copied(cli: Command) -> None:
    with living(cli, "s1"):
        assert cli.run("copy", "s1", "--to", f"jsonl:{cli.root}/other").status == 4


# --- the trash -----------------------------------------------------------------------------------------------------


def test_delete_and_restore(cli: Command) -> None:
    cli.finished()
    cli.finished("s2")
    whole = cli.run("export", "s1").out
    assert cli.run("sessions", "--trash").out == f"nothing in the trash of jsonl:{cli.store}\n"
    assert cli.run("delete", "s1", "--json").record() == {"session": "s1", "purged": 0}
    assert [row["session"] for row in cli.run("sessions", "--json").record()] == ["s2"]
    assert cli.run("show", "s1").status == 2
    (item,) = cli.run("sessions", "--trash", "--json").record()
    assert list(item) == ["session", "deleted"]
    assert "s1" in cli.run("sessions", "--trash").out
    assert cli.run("restore", "s1").status == 0
    assert cli.run("export", "s1").out == whole
    assert cli.run("restore", "s1").status == 2
    cli.run("delete", "s1")
    cli.finished()
    taken = cli.run("restore", "s1")
    assert (taken.status, "there already" in taken.err) == (2, True)


def test_a_running_session_is_not_deleted(cli: Command) -> None:
    with living(cli, "s1"):
        refused = cli.run("delete", "s1")
        assert (refused.status, "held by" in refused.err) == (4, True)


def test_purge_destroys_and_without_a_setting_nothing_else_does(cli: Command) -> None:
    for session in ("s1", "s2", "s3"):
        cli.finished(session)
    cli.run("delete", "s1")
    cli.run("delete", "s2")
    assert len(cli.run("sessions", "--trash", "--json").record()) == 2
    assert cli.run("purge", "--older-than", "1", "--json").record() == {"purged": 0}
    assert cli.run("purge", "--json").record() == {"purged": 2}
    assert cli.run("sessions", "--trash", "--json").record() == []
    assert cli.run("purge", "--older-than", "-1").status == 2
    assert [row["session"] for row in cli.run("sessions", "--json").record()] == ["s3"]


def test_deleting_purges_what_is_older_than_the_configuration_says(cli: Command) -> None:
    for session in ("old", "new"):
        cli.finished(session)
    (cli.work / "fencepost.toml").write_text("purge_days = 30\n")
    cli.run("delete", "old")
    (item,) = (cli.store / ".trash").iterdir()
    deleted = int(item.name.partition("-")[0])
    item.rename(item.with_name(f"{deleted - 31 * 86_400_000}-old"))
    assert [row["session"] for row in cli.run("sessions", "--trash", "--json").record()] == ["old"], (
        "listing is reading"
    )
    assert cli.run("delete", "new", "--json").record() == {"session": "new", "purged": 1}
    assert [row["session"] for row in cli.run("sessions", "--trash", "--json").record()] == ["new"]
    (cli.work / "fencepost.toml").write_text("purge_days = -1\n")
    refused = cli.run("purge")
    assert (refused.status, "purge_days" in refused.err) == (2, True)


# --- compress ------------------------------------------------------------------------------------------------------


def test_a_compressed_session_looks_as_before_and_goes_on(cli: Command) -> None:
    cli.finished()
    commands = (["export", "s1"], ["show", "s1"], ["inspect", "s1", "--json"], ["sessions", "--json"])
    before = [cli.run(*words).out for words in commands]
    (saved,) = cli.run("compress", "s1", "--json").record()
    assert saved["session"] == "s1"
    assert saved["after"] < saved["before"]
    assert not cli.log("s1").exists()
    assert [cli.run(*words).out for words in commands] == before
    assert cli.run("fork", "s1", "--to", "f1").status == 0
    assert cli.run("copy", "s1", "--to", f"jsonl:{cli.root}/other").status == 0
    assert not cli.log("s1").exists()
    cli.script({"content": "1"}, {"content": "2"}, {"content": "Still here."})
    assert "Still here." in cli.run("resume", "s1", "go on").out
    assert cli.log("s1").exists()


def test_all_that_are_closed_are_compressed_and_no_others(cli: Command) -> None:
    cli.finished()
    cli.killed(session="s2")
    cli.finished("s3")
    damage(cli.log("s3"))
    done = cli.run("compress", "--all-closed", "--json")
    assert [saved["session"] for saved in done.record()] == ["s1"]
    assert done.status == 0
    assert [cli.log(name).exists() for name in ("s1", "s2", "s3")] == [False, True, True]
    refused = cli.run("compress", "s2")
    assert (refused.status, "fencepost resume s2" in refused.err) == (2, True)
    assert cli.run("compress", "s3").status == 5
    assert cli.run("compress").status == 2
    assert cli.run("compress", "s1", "--all-closed").status == 2


@pytest.mark.parametrize("words", [["fork"], ["copy", "s1"], ["delete"], ["restore"], ["delete", "nobody"]])
def test_wrong_words_are_one_line(cli: Command, words: list[str]) -> None:
    cli.finished()
    done = cli.run(*words)
    assert done.status == 2
    assert done.err.splitlines()[-1].startswith("fencepost")


def test_a_log_that_a_script_continues_knows_its_place(cli: Command, tmp_path: Path) -> None:
    """A fork counts the answers of its prefix: the scripted model goes on where the parent was."""
    cli.finished()
    cli.run("fork", "s1", "--to", "f1")
    cli.script(call("shell", command="echo no"), {"content": "no"}, {"content": "the third line"})
    assert "the third line" in cli.run("resume", "f1", "go on").out


# --- sessions ------------------------------------------------------------------------------------------------------


def test_a_listing_can_be_limited_and_says_that_there_is_more(cli: Command) -> None:
    for session in ("s1", "s2", "s3"):
        cli.finished(session)
    every = cli.run("sessions", "--json").record()
    assert cli.run("sessions", "--json", "--limit", "2").record() == every[:2]
    limited = cli.run("sessions", "--limit", "2").out
    assert (every[2]["session"] in limited, "there are more" in limited) == (False, True)
    for words in (["--limit", "3"], ["--limit", "2", "--all"], []):
        listed = cli.run("sessions", *words).out
        assert (every[2]["session"] in listed, "there are more" in listed) == (True, False)
    assert cli.run("sessions", "--limit", "0").status == 2
