"""Model requests for the tests of models, folded from real logs."""

import itertools

from hypothesis import strategies as st

from fencepost.core import events as ev
from fencepost.core import projection
from fencepost.core.codec import CORE, encode
from fencepost.core.log import Log

LOOK = ev.ToolSpec("look", "Look at a path.", {"type": "object", "properties": {"path": {"type": "string"}}})


def said(text):
    return (ev.Text(text),)


def call(number, arguments='{"path":"."}', *, name="look", provider_id=""):
    return ev.CallRequest(f"c{number}", name, arguments, provider_id)


class Talk:
    """A session's log, written as a conversation."""

    def __init__(self, *, provider="openai", model="any", settings=None, system="", tools=(LOOK,)):
        ticks = itertools.count(1)
        self.log = Log(ev.Header("s1", 0, "/", 1), lambda: next(ticks), CORE)
        self.header = {"provider": provider, "model": model, "settings": settings or {}, "system": system}
        self.tools = tools
        self.turn = 0
        self.step = 0

    def user(self, text):
        """A new turn with one message."""
        if self.turn:
            self.log.append(ev.StepEnd, turn=self.turn, step=self.step)
            self.log.append(ev.TurnEnd, turn=self.turn, reason="completed")
        self.turn, self.step = self.turn + 1, 1
        self.log.append(ev.TurnStart, turn=self.turn, gates=("tool",), policy="checkpoint")
        self.log.append(ev.StepStart, turn=self.turn, step=1)
        self.log.append(ev.UserMessage, message_id=f"u{self.turn}", content=said(text), source="test")
        if self.turn == 1:
            self.log.append(ev.RequestHeader, **self.header, tools=self.tools, reason="initial")
        return self

    def answer(self, *blocks, finish="stop", interrupted=False):
        """An answer, and a result for each of its calls, the last one first."""
        self.log.append(
            ev.AssistantMessage,
            turn=self.turn,
            step=self.step,
            message_id=f"m{self.log.fold.next_seq}",
            content=blocks,
            finish=finish,
            interrupted=interrupted,
        )
        asked = [block for block in blocks if isinstance(block, ev.CallRequest)]
        for block in reversed(asked):
            self.log.append(
                ev.ToolResult,
                turn=self.turn,
                step=self.step,
                call_id=block.call_id,
                content=said(f"result of {block.call_id}"),
            )
        if asked:
            self.log.append(ev.StepEnd, turn=self.turn, step=self.step)
            self.step += 1
            self.log.append(ev.StepStart, turn=self.turn, step=self.step)
        return self

    def request(self):
        return projection.request(self.log)


def request(answers=0, **header):
    """The request that comes after so many whole answers."""
    talk = Talk(**header).user("begin")
    for number in range(answers):
        talk.answer(ev.Text(f"answer {number + 1}")).user("go on")
    return talk.request()


def reopened(log):
    """The same log, from its bytes."""
    return Log(log.header, lambda: 0, CORE, [CORE.decode(encode(entry)) for entry in log.entries])


# --- whatever a model answered ---------------------------------------------------------------------------------

TEXTS = st.text(max_size=8)
SEALS = st.fixed_dictionaries(
    {"provider": st.sampled_from(["anthropic", "other"]), "model": st.sampled_from(["any", "other"])},
    optional={"signature": st.just("s"), "data": st.just("d")},
)
BLOCKS = st.lists(
    st.builds(ev.Text, TEXTS)
    | st.builds(ev.Reasoning, TEXTS, st.none() | SEALS)
    | st.builds(
        ev.CallRequest,
        st.just(""),
        st.sampled_from(["look", "", "a.b c", "x" * 80]) | TEXTS,
        st.sampled_from(["{}", '{"path":"ä"}', "", "[1]", '{"a":', "NaN"]) | TEXTS,
        st.sampled_from(["", "call_0", "call_1", "c1", "i" * 60]),
    ),
    max_size=4,
)
ANSWERS = st.lists(st.tuples(BLOCKS, st.booleans()), max_size=4)


def talk_of(answers, provider, settings=None):
    talk = Talk(provider=provider, system="s", settings=settings).user("begin")
    number = 0
    for blocks, interrupted in answers:
        named = []
        for block in blocks:
            if isinstance(block, ev.CallRequest):
                if interrupted:
                    continue
                number += 1
                named.append(ev.CallRequest(f"c{number}", block.name, block.arguments, block.provider_id))
            else:
                named.append(block)
        talk.answer(*named, interrupted=interrupted)
        talk.user("go on")
    return talk
