"""Between two steps, or two turns: asking the model something that is not part of the conversation.

Rules:
    1. Such a request passes the request gate like any other (law 3): what it is made from is durable when it leaves.
    2. It offers no tools, and nothing of its answer is recorded here. What comes of it is for who asked to record, in
       one event: a crash before that leaves the log as it was.
    3. One request, no retries: who asked decides what a failure means.

What it refuses to be: the deciding when and what to ask (`plugins/compaction`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from fencepost.core import events as ev
from fencepost.core.projection import ModelRequest, UserTurn
from fencepost.errors import UsageError
from fencepost.runtime.answer import Assembler
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.hooks import through
from fencepost.runtime.request import ask
from fencepost.runtime.subjects import Answer, Attempt, Compacted, Pause

if TYPE_CHECKING:
    from fencepost.runtime.loop import Body

OF_TOOLS: Final = frozenset({"tool_choice", "parallel_tool_calls", "function_call", "response_format"})
"""Settings that providers refuse without tools, or that give an answer a form; left out of such a request."""


def pause_of(body: Body, cancel: CancelSignal) -> Pause:
    """What a plugin may use while no step is open."""
    model = f"{body.model.provider}:{body.model.model}"
    return Pause(body.journal, cancel, model, body.notify, partial(_ask, body, cancel))


async def compact(body: Body, cancel: CancelSignal) -> Compacted:
    """Let the plugin that can put a summary in the place of older steps, and make that durable.

    Raises:
        UsageError: nothing that is composed can.
        Cancelled, ModelError, NotSavedError: it came to nothing; the history is as it was. After a `NotSavedError` the
            summary may be in force in this process, and not yet on disk.
    """
    done = await through(body.hooks.compact, pause_of(body, cancel), _nobody, cancel, body.rules.drain)
    await body.journal.flush()
    return done


async def _nobody(pause: Pause) -> Compacted:
    raise UsageError(
        f"nothing in session {pause.journal.session} can sum up its history", next_act="Compose the plugin 'compaction'"
    )


async def _ask(body: Body, cancel: CancelSignal, system: str, text: str) -> Answer:
    """See `Pause.ask`."""
    model, log = body.model, body.journal.log
    settings = {name: value for name, value in model.settings.items() if name not in OF_TOOLS}
    request = ModelRequest(
        session=log.header.session,
        provider=model.provider,
        model=model.model,
        settings=settings,
        system=system,
        tools=(),
        messages=(UserTurn((ev.Text(text),)),),
        wire_ids={},
        answered=log.fold.answers,
    )
    turn = log.fold.turn
    attempt = Attempt(
        body.journal, turn.number if turn else 0, turn.step if turn else 0, 1, request, cancel, aside=True
    )
    return await ask(body, attempt, Assembler(lambda: body.journal.identity.fresh("c")))
