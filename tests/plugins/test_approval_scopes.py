"""What an "always" covers and what it does not, on real shells, real files and real links."""

import pytest
from tests.plugins.people import Person, asked_about, chosen
from tests.plugins.people import shell as bash
from tests.runtime.rig import Agent, TouchyStore, call, calls, run

from fencepost.core import events as ev
from fencepost.plugins.approval import Approval, Verdict
from fencepost.plugins.files import file_tools
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext

YES, NO = Verdict(allowed=True), Verdict(allowed=False)


def shell(command):
    return call("shell", {"command": command})


def write(path, content="x"):
    return call("write_file", {"path": str(path), "content": content})


def edit(path):
    return call("edit_file", {"path": str(path), "old": "x", "new": "y"})


@tool
async def act(flag: bool | int = 0) -> str:
    """Act."""
    return "done"


# --- what is offered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "offered"),
    [
        (shell("git status -s"), [("call", ""), ("prefix", "git status"), ("tool", "shell")]),
        (shell("git status; rm x"), [("call", ""), ("tool", "shell")]),
        (shell("sudo ls"), [("call", ""), ("tool", "shell")]),
        (shell("x" * 300), [("call", ""), ("tool", "shell")]),
        (call("act"), [("call", ""), ("tool", "act")]),
        (write("src/deep/../a.py"), [("call", ""), ("directory", "CWD/src"), ("tool", "write_file")]),
        (write("a.py"), [("call", ""), ("directory", "CWD"), ("tool", "write_file")]),
        (call("list_files", {"path": "/usr/lib"}), [("call", ""), ("directory", "/usr/lib")]),
        (call("list_files", {"path": "/"}), [("call", "")]),
        (call("read_file", {"path": "out/b"}), [("call", ""), ("directory", "OUT")]),
    ],
)
def test_what_a_person_is_offered(tmp_path, request_, offered):
    cwd, out = tmp_path / "cwd", tmp_path / "out"
    (cwd / "src").mkdir(parents=True)
    out.mkdir()
    (cwd / "out").symlink_to(out)
    (question,) = asked_about([request_], [NO], cwd, act)
    real = [(scope, pattern.replace("CWD", str(cwd)).replace("OUT", str(out))) for scope, pattern in offered]
    assert [(choice.scope, choice.pattern) for choice in question.choices] == real
    assert all(choice.pattern in choice.text for choice in question.choices)


# --- what is covered --------------------------------------------------------------------------------------------


def again(tmp_path, scope, first, *others):
    """The calls after the first that a person is asked about again, when "always" is said once."""
    (tmp_path / "cwd").mkdir(exist_ok=True)
    questions = asked_about([first, *others], [chosen(scope), *[NO] * len(others)], tmp_path / "cwd", act)
    return [question.arguments for question in questions[1:]]


def arguments(*requests):
    return [request["function"]["arguments"] for request in requests]


def test_exactly_this_call(tmp_path):
    others = [shell("echo 1 "), shell("echo 1"), shell("echo 2"), write("echo 1")]
    assert again(tmp_path, "call", shell("echo 1"), *others) == arguments(others[0], others[2], others[3])


def test_true_is_not_one(tmp_path):
    one, true = call("act", {"flag": 1}), call("act", {"flag": True})
    assert again(tmp_path, "call", one, true, one) == arguments(true)


def test_the_same_call_is_another_one_when_its_path_leads_elsewhere(tmp_path):
    """Between the two, a command puts a link where the file was written."""
    cwd = tmp_path / "cwd"
    (cwd / "d").mkdir(parents=True)
    link = shell("rm -r d; ln -s /tmp d")
    answers = [chosen("call"), YES, NO]
    questions = asked_about([write("d/f"), write("d/f"), link, write("d/f")], answers, cwd, act)
    assert [question.tool for question in questions] == ["write_file", "shell", "write_file"]
    assert "outside the working directory" in questions[-1].reason


TRICKS = [
    "echo 1; touch made",
    "echo 1 && touch made",
    "echo $(touch made)",
    "echo `touch made`",
    'echo "$(touch made)"',
    "echo 1\ntouch made",
    "echo 1 > made",
    "echo 1 | tee made",
    "echo 1 & touch made",
    "X=1 echo 1",
    "(echo 1)",
    "echo <(touch made)",
    "echoes 1",
    "'echo 1'",
    "/bin/echo 1",
    "sudo echo 1",
]


def test_a_prefix_covers_simple_commands_with_its_words_and_no_trick(tmp_path):
    plain = [shell("echo 2"), shell("echo 'two words' \"more\""), shell("  echo")]
    tricks = [shell(trick) for trick in TRICKS]
    assert again(tmp_path, "prefix", shell("echo 1"), *plain, *tricks) == arguments(*tricks)
    assert not (tmp_path / "cwd" / "made").exists()


def test_a_directory_covers_a_tool_in_it_and_below(tmp_path):
    cwd = tmp_path / "cwd"
    (cwd / "in" / "deep").mkdir(parents=True)
    (cwd / "inner").mkdir()
    (cwd / "in" / "out").symlink_to("/tmp")
    (cwd / "way").symlink_to(cwd / "in")
    covered = [write("in/b"), write("in/deep/new/c"), write(cwd / "in" / "d"), write("in/deep/../e"), write("way/f")]
    asked = [write("in/../g"), write("inner/h"), write("in/out/i"), write("i"), edit("in/b")]
    assert again(tmp_path, "directory", write("in/a"), *covered, *asked) == arguments(*asked)


def test_a_directory_outside_is_covered_if_that_was_said(tmp_path):
    cwd, out = tmp_path / "cwd", tmp_path / "out"
    for directory in (cwd, out):
        directory.mkdir()
    (cwd / "link").symlink_to(out)
    asked = [write(tmp_path / "c"), write(out / ".." / "d")]
    assert again(tmp_path, "directory", write(out / "a"), write(out / "b"), write("link/b"), *asked) == arguments(
        *asked
    )
    assert (out / "b").exists()


def test_a_tool_is_not_covered_where_it_leaves_the_directory(tmp_path):
    asked = [write(tmp_path / "c"), write("../d")]
    assert again(tmp_path, "tool", write("a"), write("b", "z"), *asked) == arguments(*asked)


@pytest.mark.parametrize(
    ("scope", "pattern", "request_"),
    [
        ("prefix", "", shell("echo 1")),
        ("prefix", "git", shell("echo 1")),
        ("prefix", "echo", shell("echo 1; echo 2")),
        ("prefix", "act", call("act")),
        ("directory", "", write("a")),
        ("directory", "/usr", write("a")),
        ("directory", ".", write("a")),
        ("directory", "/", shell("echo 1")),
    ],
)
def test_an_answer_that_does_not_cover_its_own_call_counts_once(tmp_path, scope, pattern, request_):
    answer = Verdict(allowed=True, remember=True, scope=scope, pattern=pattern)
    questions = asked_about([request_, request_], [answer, NO], tmp_path, act)
    assert len(questions) == 2


def test_a_person_may_choose_wider_than_offered(tmp_path):
    wide = Verdict(allowed=True, remember=True, scope="prefix", pattern="git")
    assert len(asked_about([shell("git --version"), shell("git config -l")], [wide], tmp_path, act)) == 1


# --- the log ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["call", "prefix", "directory", "tool"])
def test_every_scope_is_read_back_from_the_log_by_the_next_process(tmp_path, scope):
    async def scenario():
        from fencepost.stores.jsonl import JsonlStore

        request_ = write("a") if scope == "directory" else shell("echo 1")
        person = Person(chosen(scope))
        for _ in range(2):
            async with Agent(
                [calls(request_), "ok", calls(request_), "ok"],
                tools=[*file_tools(), bash],
                plugins=[Approval("ask", person.ask)],
                store=JsonlStore(tmp_path),
                cwd=tmp_path,
            ) as agent:
                await agent.session.prompt("go")
        assert len(person.questions) == 1
        assert len(agent.events(ev.ToolCall)) == 2
        decided = agent.one(ev.ApprovalDecided)
        offered = next(choice for choice in person.questions[0].choices if choice.scope == scope)
        assert (decided.remember, decided.scope, decided.pattern) == (True, scope, offered.pattern)

    run(scenario)


def test_a_record_of_an_earlier_release_means_the_tool():
    async def scenario():
        async def old(go):
            """What the former plugin wrote: neither scope nor pattern."""
            agent.session.journal.append(ev.ApprovalAsked, call_id=go.call_id, question="act: it is declared write")
            agent.session.journal.append(ev.ApprovalDecided, call_id=go.call_id, allowed=True, by="user", remember=True)
            return YES

        async def ask(question):
            asked.append(question)
            return await old(question) if len(asked) == 1 else NO

        asked, store = [], TouchyStore()
        answers = [calls(call("act"), call("act", {"flag": 1}), shell("echo 1")), "ok"]
        async with Agent(answers, tools=[act, bash], plugins=[Approval("ask", ask)], store=store) as agent:
            await agent.session.prompt("go")
        assert [question.tool for question in asked] == ["act", "shell"]

    run(scenario)


def test_a_no_remembers_nothing(tmp_path):
    no = Verdict(allowed=False, remember=True, scope="tool", pattern="shell")
    assert len(asked_about([shell("echo 1"), shell("echo 1")], [no, NO], tmp_path, act)) == 2


def test_a_nested_call_is_asked_about_and_remembered_alike(tmp_path):
    @tool
    async def outer(context: CallContext) -> str:
        """Call."""
        for number in (1, 2):
            await context.call("shell", {"command": f"echo {number}"})
        return "done"

    questions = asked_about([call("outer")], [YES, chosen("prefix")], tmp_path, outer)
    assert [question.tool for question in questions] == ["outer", "shell"]
