"""Questions about calls, from the approval policy to whoever is connected, and answers back.

A question lives as long as the turn that asks it: cancelled with the turn, void after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencepost.client import wire
from fencepost.errors import UsageError
from fencepost.plugins.approval import Question, Verdict


class OpenQuestions:
    """Implements `plugins.approval.Ask`.

    Args:
        told: called with each new question.
    """

    def __init__(self, told: Callable[[Question], None]) -> None:
        self._told = told
        self._open: dict[tuple[str, str], tuple[Question, asyncio.Future[Verdict]]] = {}

    async def __call__(self, question: Question) -> Verdict:
        """Ask, and wait for the answer or for the turn's end."""
        key = (question.session, question.call_id)
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._open[key] = (question, answer)
        self._told(question)
        try:
            return await answer
        finally:
            del self._open[key]

    def of(self, session: str) -> list[Question]:
        """What is asked at present in a session."""
        return [asked for asked, answer in self._open.values() if asked.session == session and not answer.done()]

    def answer(self, said: wire.Decide) -> None:
        """Answer one.

        Raises:
            UsageError: it is not open, or not any more.
        """
        asked, answer = self._open.get((said.session, said.call_id), (None, None))
        if asked is None or answer is None or answer.done():
            raise UsageError(
                f"nothing is asked about call {said.call_id} of session {said.session}",
                next_act="It is void once its turn was cancelled or its server ended; approval/list says what is open",
            )
        answer.set_result(
            Verdict(
                allowed=said.allowed,
                remember=said.remember,
                reason=said.reason,
                scope=said.scope,
                pattern=said.pattern,
            )
        )
