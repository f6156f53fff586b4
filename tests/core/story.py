"""A log told step by step, for tests that need one certain log; and all that a log knows, to compare."""

from tests.core.logs import empty

from fencepost.core import events as ev


def snapshot(log):
    """All that a log holds and knows, as text: equal before and after means that nothing changed."""
    fold = log.fold
    known = (
        fold.next_seq,
        fold.last_time,
        fold.state,
        fold.turn,
        fold.turns,
        fold.calls,
        list(fold.owed),
        fold.pending,
        fold.owner,
        fold.header,
        fold.answers,
        fold.said,
        fold.cuts,
    )
    return repr(known), list(log.entries)


class Story:
    """A log told step by step, so that each rule can be broken from a place that is otherwise legal."""

    def __init__(self):
        self.log = empty()

    def turn(self, number=1):
        self.log.append(ev.TurnStart, turn=number, gates=("tool",), policy="p")
        return self

    def step(self, number=1, turn=1):
        self.log.append(ev.StepStart, turn=turn, step=number)
        return self

    def asks(self, *names, step=1):
        content = tuple(ev.CallRequest(name, "f", "{}") for name in names)
        self.log.append(
            ev.AssistantMessage,
            turn=1,
            step=step,
            message_id="m",
            content=content,
            finish="tool_calls" if names else "stop",
        )
        return self

    def call(self, name, parent=None, retries=None):
        about = {"call_id": name, "name": "f", "arguments": {}, "effect": "write"}
        self.log.append(ev.ToolCall, turn=1, step=1, **about, parent=parent, retries=retries)
        return self

    def result(self, name, step=1, **about):
        self.log.append(ev.ToolResult, turn=1, step=step, call_id=name, **{"content": (), **about})
        return self

    def queued(self, name):
        self.log.append(ev.InputQueued, input_id=name, target="turn", content=())
        return self

    def says(self, text, step=1):
        about = {"turn": 1, "step": step, "message_id": "m", "finish": "stop"}
        self.log.append(ev.AssistantMessage, content=(ev.Text(text),), **about)
        return self

    def hears(self, text):
        self.log.append(ev.UserMessage, message_id="u", content=(ev.Text(text),), source="user")
        return self

    def step_end(self, step=1):
        self.log.append(ev.StepEnd, turn=1, step=step)
        return self

    def summary(self, through, text="so far"):
        self.log.append(ev.ContextSummary, through=through, content=(ev.Text(text),), model="m")
        return self

    def turn_end(self):
        self.log.append(ev.TurnEnd, turn=1, reason="completed")
        return self


def asked(*names):
    return Story().turn().step().asks(*names)
