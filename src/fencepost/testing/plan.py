"""What a scripted server is to do: answers, attempts, faults and holds. No IO.

Answer N goes to the request that has N assistant messages in it: the server keeps no conversation, so a session that
was killed and resumed goes on where it was. (An answer that shows nothing is not in the next request, so a server
cannot count it: leave such answers to `ScriptedModel`.)

An answer may carry a `fault`. A list in place of an answer holds what the first, second, … attempt at it gets; the last
is for all further ones.

A fault is an object with a `kind`; `after` counts the pieces of the answer that go out before it (none, if absent):

    status      `status`, `headers` and `body` in place of an answer
    hold        wait until released: before the response begins, or after so many pieces; then go on
    cut         the connection ends in the middle
    reset       the connection is reset
    malformed   a piece that is not JSON
    error       an error object inside the stream (`body`)
    no_finish   a proper end without a finish reason, after so many pieces or all
    no_choices  a proper stream that says nothing more (in chat form: a chunk without choices)
    raw         `chunks`, sent as they are
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from fencepost.plugins.script import NotAnAnswerError, ScriptedAnswer, read_answer


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one attempt goes wrong; see the module's docstring."""

    kind: Literal["status", "hold", "cut", "reset", "malformed", "error", "no_finish", "no_choices", "raw"]
    after: int | None = None
    status: int = 500
    headers: dict[str, str] = {}
    body: Any = None
    chunks: list[Any] = []


class Hold:
    """A place where an answer stands still.

    Attributes:
        reached: set when an answer stands there.
        release: set it to let the answer go on.
    """

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.release = threading.Event()

    def __repr__(self) -> str:
        return f"<Hold {'released' if self.release.is_set() else 'reached' if self.reached.is_set() else 'ahead'}>"


class Attempt(msgspec.Struct, frozen=True):
    """What one attempt at one request gets."""

    answer: ScriptedAnswer
    fault: Fault | None = None
    hold: Hold | None = None


class Plan:
    """A script, and how far it was used. Safe to use from many threads.

    Args:
        script: answers, as text or as a line of a `script:FILE` has them, with faults.

    Attributes:
        holds: the holds of the script, in its order.

    Raises:
        NotAnAnswerError: an item does not have the form; a `ValueError`.
    """

    def __init__(self, script: Iterable[Any]) -> None:
        self.holds: list[Hold] = []
        self._answers = [self._read(item) for item in script]
        self._taken: Counter[int] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._answers)

    def choose(self, answered: int) -> Attempt | None:
        """What the next attempt at the request with so many answers before it gets; None if the script ran out."""
        if answered >= len(self._answers):
            return None
        attempts = self._answers[answered]
        with self._lock:
            number = self._taken[answered]
            self._taken[answered] += 1
        return attempts[min(number, len(attempts) - 1)]

    def _read(self, item: object) -> list[Attempt]:
        if item == []:
            raise NotAnAnswerError("an answer with no attempts")
        return [self._attempt(one) for one in (item if isinstance(item, list) else [item])]

    def _attempt(self, item: object) -> Attempt:
        if not (isinstance(item, dict) and "fault" in item):
            return Attempt(read_answer(item))
        given = item["fault"]
        try:
            fault = given if isinstance(given, Fault) else msgspec.convert(given, Fault)
        except msgspec.ValidationError as error:
            raise NotAnAnswerError(f"`fault`: {error}") from None
        hold = None
        if fault.kind == "hold":
            hold = Hold()
            self.holds.append(hold)
        return Attempt(read_answer({"content": None, **item}), fault, hold)
