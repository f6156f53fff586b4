"""People for the tests of policies: they answer in order, and remember what they were asked."""

import subprocess

from tests.runtime.rig import Agent, calls, run

from fencepost.plugins.approval import Approval
from fencepost.plugins.files import file_tools
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext


@tool
def shell(context: CallContext, command: str) -> str:
    """Run a command line: the name and the argument of the shipped tool, and a real bash."""
    done = subprocess.run(["bash", "-c", command], cwd=context.cwd, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


class Person:
    """Answers in order; keeps the questions. An answer may be a function of the question."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.questions = []

    async def ask(self, question):
        self.questions.append(question)
        answer = self.answers.pop(0)
        return answer(question) if callable(answer) else answer


def chosen(scope):
    """Choose what is offered with this scope."""
    return lambda question: next(choice.yes() for choice in question.choices if choice.scope == scope)


def asked_about(requests, answers, cwd, *tools, plugins=()):
    """What a person is asked when a model makes these calls, one a step, with the shipped tools in `cwd`."""

    async def scenario():
        person = Person(*answers)
        script = [*(calls(request) for request in requests), "ok"]
        more = [*file_tools(), shell, *tools]
        async with Agent(script, tools=more, plugins=[*plugins, Approval("ask", person.ask)], cwd=cwd) as agent:
            assert (await agent.session.prompt("go")).reason == "completed"
        return person.questions

    return run(scenario)
