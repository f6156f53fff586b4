"""What each `/` command does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.apps.tui.agent import Agent
from fencepost.apps.tui.commands import help_text
from fencepost.apps.tui.pager import Pager, command
from fencepost.apps.tui.picker import Picker
from fencepost.core import events as ev
from fencepost.errors import UsageError

if TYPE_CHECKING:
    from fencepost.apps.tui.app import Chat

ENDINGS = {"markdown": "md", "jsonl": "jsonl", "openai": "json", "anthropic": "json"}


class Acts:
    """See the module.

    Args:
        chat: the application.
        agent: what it works with.
    """

    def __init__(self, chat: Chat, agent: Agent) -> None:
        self._chat = chat
        self._agent = agent

    async def run(self, name: str, words: list[str]) -> None:
        """Do it.

        Raises:
            FencepostError, OSError: it could not be done.
        """
        await getattr(self, f"do_{name}")(words)

    # --- sessions -----------------------------------------------------------------------------------------------

    async def do_sessions(self, words: list[str]) -> None:
        """Choose one."""
        picked = await self._chat.push_screen_wait(Picker(self._agent.sessions))
        if picked is not None and not (words and words[0] == "look"):
            await self._chat.opening.take_up(picked)

    async def do_resume(self, words: list[str]) -> None:
        """Take one up."""
        if not words:
            await self.do_sessions([])
        else:
            await self._chat.opening.take_up(words[0])

    async def do_new(self, words: list[str]) -> None:  # noqa: ARG002 - the shape of a command
        """Begin one."""
        await self._agent.new()

    async def do_fork(self, words: list[str]) -> None:
        """Go on in a copy of the beginning."""
        turn = None
        if words:
            number = words[0].removeprefix("turn:")
            if not number.isdecimal():
                raise UsageError(f"/fork {words[0]}: that is no turn", next_act="Write /fork N for the end of turn N")
            turn = int(number)
        name = await self._agent.fork(turn)
        await self._chat.opening.take_up(name)
        self._chat.say(f"session {name} goes on from here; the other one stays as it is")

    # --- looking ------------------------------------------------------------------------------------------------

    async def do_show(self, words: list[str]) -> None:  # noqa: ARG002
        """The timeline."""
        await self._page("show", [self._stored()])

    async def do_doctor(self, words: list[str]) -> None:  # noqa: ARG002
        """The checkup."""
        self._chat.say("checking, which takes a few seconds …")
        await self._page("doctor", [self._stored()])

    async def do_help(self, words: list[str]) -> None:  # noqa: ARG002
        """Keys and commands."""
        await self._chat.push_screen_wait(Pager("help", help_text()))

    async def do_export(self, words: list[str]) -> None:
        """Write it to a file."""
        name = self._stored()
        form = words[0] if words and words[0] in ENDINGS else "markdown"
        rest = words[1:] if words and words[0] in ENDINGS else words
        cwd = Path(self._agent.session.journal.log.header.cwd)
        path = cwd / (rest[0] if rest else f"{name}.{ENDINGS[form]}")
        await self._agent.session.journal.flush()
        try:
            printed = await command(
                ["export", name, "--format", form], url=self._agent.url, cwd=cwd, width=80, into=path
            )
        except FileExistsError:
            raise UsageError(f"{path} is there already; nothing was written", next_act="Name another file") from None
        self._chat.say(f"exported to {path}" + (f"; {printed.err.strip()}" if printed.err.strip() else ""))

    async def _page(self, name: str, words: list[str]) -> None:
        agent, chat = self._agent, self._chat
        cwd = Path(agent.session.journal.log.header.cwd)
        printed = await command([name, *words], url=agent.url, cwd=cwd, width=max(chat.size.width - 8, 40))
        await chat.push_screen_wait(Pager(f"fencepost {name} {words[0]}", printed.out + printed.err))

    def _stored(self) -> str:
        """The session's id, if there is anything of it on disk.

        Raises:
            UsageError: there is not.
        """
        session = self._agent.session
        if not session.guarantees.durable or session.journal.watermark < 0:
            raise UsageError("nothing of this session is on disk yet")
        return session.id

    # --- settings -----------------------------------------------------------------------------------------------

    async def do_model(self, words: list[str]) -> None:
        """Another model."""
        if not words:
            self._chat.say(f"model {self._chat.model or 'none'}; /model openai:NAME (or another) changes it")
            return
        await self._agent.another_model(words[0], self._chat.hear)
        await self._chat.opening.show_current()
        self._chat.say(f"the next request goes to {self._chat.model}")

    async def do_approve(self, words: list[str]) -> None:
        """Which calls run."""
        if words:
            self._agent.approve(words[0])
        self._chat.say(
            f"approve {self._agent.mode}: " + ("from the next call on" if words else "/approve MODE changes it")
        )
        self._chat.mark()

    # --- the conversation ---------------------------------------------------------------------------------------

    async def do_compact(self, words: list[str]) -> None:  # noqa: ARG002
        """A summary in place of older steps."""
        self._chat.say("summing up …  (Esc calls it off)")
        done = await self._agent.session.compact()
        self._chat.say(f"{done.steps} steps summed up: about {done.before} tokens before, {done.after} after")

    async def do_drop(self, words: list[str]) -> None:  # noqa: ARG002
        """Take the newest waiting prompt back."""
        pending = list(self._agent.session.journal.log.fold.pending.values())
        if not pending:
            raise UsageError("no prompt is waiting")
        await self._agent.session.drop(pending[-1].input_id)
        self._chat.put_back(ev.text_of(pending[-1].content))

    async def do_quit(self, words: list[str]) -> None:  # noqa: ARG002
        """Leave."""
        self._chat.action_leave()
