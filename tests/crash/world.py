"""What really happened, kept apart from the log: bodies entered, effects done, requests sent, prompts acknowledged.

A log is judged against this. It only grows, under one lock that the takers of copies share, so that what a copy of the
disk is compared with is what was true when it was taken.
"""

import threading
from collections import Counter

import msgspec

from fencepost.core.projection import ModelRequest


class Witness(msgspec.Struct, frozen=True):
    """What had happened by some moment.

    Attributes:
        entered: ids of calls whose body was entered.
        done: ids of calls whose effect has happened, once for each time.
        replies: what bodies gave back, by call id.
        requests: model requests that left.
        acknowledged: prompts that somebody was told are kept: input id and text.
        shown: results that somebody was shown: call id and text.
    """

    entered: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    replies: tuple[tuple[str, str], ...] = ()
    requests: tuple[ModelRequest, ...] = ()
    acknowledged: tuple[tuple[str, str], ...] = ()
    shown: tuple[tuple[str, str], ...] = ()


NOTHING = Witness()


class World:
    """See the module."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._seen: dict[str, list] = {name: [] for name in Witness.__struct_fields__}

    def _note(self, what: str, value: object) -> None:
        with self.lock:
            self._seen[what].append(value)

    def enter(self, call_id: str) -> None:
        self._note("entered", call_id)

    def effect(self, call_id: str) -> None:
        self._note("done", call_id)

    def reply(self, call_id: str, text: str) -> str:
        self._note("replies", (call_id, text))
        return text

    def send(self, request: ModelRequest) -> None:
        self._note("requests", request)

    def acknowledge(self, input_id: str, text: str) -> None:
        self._note("acknowledged", (input_id, text))

    def show(self, call_id: str, text: str) -> None:
        self._note("shown", (call_id, text))

    def witness(self) -> Witness:
        with self.lock:
            return Witness(**{name: tuple(values) for name, values in self._seen.items()})


def twice(done: tuple[str, ...]) -> list[str]:
    """Calls whose effect happened more than once."""
    return [call for call, times in Counter(done).items() if times > 1]
