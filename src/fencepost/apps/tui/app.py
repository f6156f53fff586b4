"""The application: the conversation above, what waits and what is wrong below it, the input, the status line.

Rules:
    1. It shows a session and keeps nothing of it: all of it comes from the log (`transcript`, `figures`).
    2. A prompt stays in the input until it is durable: only then it is ours (law 9).
    3. Nothing runs because a session was opened. After a crash the table of verdicts comes first.
    4. There is one way out, whatever asks for it: the agent is closed in order while the screen still shows it, then
       the screen goes.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.widgets import Static, TextArea

from fencepost.apps.cli import exits
from fencepost.apps.cli.live import sentence
from fencepost.apps.cli.stop import Cause, Stop
from fencepost.apps.tui.acts import Acts
from fencepost.apps.tui.agent import Agent
from fencepost.apps.tui.commands import listed, matching, read
from fencepost.apps.tui.dialogs import Asking
from fencepost.apps.tui.figures import Tokens, status_line, waiting_lines
from fencepost.apps.tui.look import CSS, without_colour
from fencepost.apps.tui.opening import Opening
from fencepost.apps.tui.prompt import Prompt
from fencepost.apps.tui.telling import Tone
from fencepost.apps.tui.texts import content
from fencepost.apps.tui.transcript import Transcript
from fencepost.errors import FencepostError
from fencepost.plugins.approval import Question, Verdict
from fencepost.plugins.folded import Folded
from fencepost.runtime.cancel import CLOSING
from fencepost.runtime.subjects import Notice

QUIT = Cause(exits.DONE, CLOSING, bounded=False)
"""A person leaves: prompts that wait keep waiting."""

TICK = 0.1
"""Seconds between two drawings of the status line at least."""

BELOW = frozenset({"scroll", "newest", "fold_all", "leave_if_empty"})
"""What keys do in the conversation only."""

AGAIN = 1.0
"""Seconds after which leaving once more means: at once."""

UNANSWERED = Verdict(allowed=False, by="fencepost", reason="the turn was cancelled before there was an answer")

HINT = "Enter sends · Esc cancels · /help"


class Chat(App[None]):
    """See the module.

    Args:
        stop: why it ends, once it does.
        first: the session to begin with; a new one if left out.
        driver: what draws; Textual's choice if left out.
    """

    CSS = CSS
    TITLE = "fencepost"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+q", "leave", show=False, priority=True),
        Binding("ctrl+d", "leave_if_empty", show=False, priority=True),
        Binding("ctrl+o", "fold_all", show=False, priority=True),
        Binding("pageup", "scroll(-1)", show=False, priority=True),
        Binding("pagedown", "scroll(1)", show=False, priority=True),
        Binding("ctrl+end", "newest", show=False, priority=True),
    ]

    def __init__(self, stop: Stop, first: str | None = None, driver: type[Driver] | None = None) -> None:
        super().__init__(driver_class=driver, ansi_color=True if without_colour() else None)
        self._stop = stop
        self._first = first
        self._agent: Agent | None = None
        self._acts: Acts | None = None
        self._tokens = Folded(Tokens)
        self._marked = False
        self._asked = 0.0
        self.opening = Opening(self, stop)
        """The session that is looked at, and how it is replaced."""
        self.failures: list[Exception] = []
        """What failed when it was closed."""
        self.fault: Exception | None = None
        """What of the screen failed; the first one."""

    def serve(self, agent: Agent) -> None:
        """Work with this agent."""
        self._agent = agent
        self._acts = Acts(self, agent)

    @property
    def agent(self) -> Agent:
        """What it works with."""
        assert self._agent is not None, "given before the application runs"
        return self._agent

    @property
    def transcript(self) -> Transcript:
        """The conversation."""
        return self.screen_stack[0].query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        """The input."""
        return self.screen_stack[0].query_one(Prompt)

    @property
    def model(self) -> str | None:
        """The model of the next request."""
        model = self.agent.runtime.model if self.agent.opened else None
        return f"{model.provider}:{model.model}" if model is not None else None

    def compose(self) -> ComposeResult:
        """See the module."""
        yield Transcript()
        yield Static(id="waiting")
        yield Static(id="unsaved")
        yield Prompt()
        yield Static(content(HINT), id="hint")
        yield Static(id="status")

    def on_mount(self) -> None:
        """Open the first session."""
        if hasattr(asyncio, "eager_task_factory"):
            # Textual has set it. What the runtime starts must not begin in the middle of what started it.
            asyncio.get_running_loop().set_task_factory(None)
        self.prompt.focus()
        self.run_worker(self._until_asked(), name="until asked to end")
        self.opening.in_turn(self.opening.begin(self._first))

    # --- input --------------------------------------------------------------------------------------------------

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """A line was sent: a command, or a prompt."""
        text = event.text
        if self._stop.cause is not None:
            return
        if not text.startswith("/"):
            self.prompt.read_only = True
            self.run_worker(self._send(text, steer=event.steer), name="send")
            return
        try:
            found, words = read(text.strip())
            if found.idle and self.opening.shown is not None and not self.opening.shown.idle:
                self.say(f"/{found.name}: a turn works; Esc cancels it", "warning")
                return
        except FencepostError as error:
            self.say(sentence(error), "warning")
            return
        self.prompt.clear()
        assert self._acts is not None
        self.opening.in_turn(self._acts.run(found.name, words))

    async def _send(self, text: str, *, steer: bool) -> None:
        try:
            if self.opening.shown is not None:
                await (self.opening.shown.steer(text) if steer else self.opening.shown.queue(text))
                self.prompt.clear()
        except FencepostError as error:
            self.say(f"not sent: {sentence(error)}", "bad")
        finally:
            self.prompt.read_only = False
            self.transcript.anchor()

    def put_back(self, text: str) -> None:
        """Give a text back to whoever wrote it, in front of what they write now."""
        self.prompt.put("\n".join(part for part in (text, self.prompt.text) if part))

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Say what a command may become."""
        found = matching(event.text_area.text)
        words = listed(found) if len(found) != 1 else f"/{found[0].name} {found[0].arguments}  {found[0].about}"
        self.screen_stack[0].query_one("#hint", Static).update(content(words or HINT))

    def on_prompt_completing(self) -> None:
        """Complete a command as far as it goes."""
        names = [f"/{one.name}" for one in matching(self.prompt.text)]
        if names:
            shared = names[0]
            while not all(name.startswith(shared) for name in names):
                shared = shared[:-1]
            self.prompt.put(shared + (" " if len(names) == 1 else ""))

    # --- keys ---------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Keys of the conversation mean something else while a dialog stands above it."""
        return action not in BELOW or len(self.screen_stack) == 1

    def action_cancel(self) -> None:
        """Cancel the turn, or what stands in place of one; the keyboard goes back to the input."""
        self.prompt.focus()
        self.opening.call_off()
        if self.opening.shown is not None and self._stop.cause is None:
            self.opening.shown.cancel_soon()

    def action_interrupt(self) -> None:
        """Cancel the turn; without one empty the line; if it is empty leave."""
        if self._stop.cause is not None:
            self.action_leave()
        elif self.opening.shown is not None and not self.opening.shown.idle:
            self.action_cancel()
        elif self.prompt.text:
            self.prompt.clear()
        else:
            self.say("Ctrl+Q leaves")

    def action_leave(self) -> None:
        """Leave in order; asked a second time at once. A key that repeats itself asks once."""
        now = time.monotonic()
        if self._stop.cause is None:
            self._asked = now
            self._stop.request(QUIT)
        elif now - self._asked > AGAIN:
            self._stop.at_once(exits.INTERRUPTED)

    def action_leave_if_empty(self) -> None:
        """What Ctrl+D means everywhere."""
        if not self.prompt.text:
            self.action_leave()

    def action_fold_all(self) -> None:
        """Unfold all cards, or fold them."""
        self.transcript.fold_all()

    def action_scroll(self, way: int) -> None:
        """Scroll the conversation."""
        (self.transcript.scroll_page_up if way < 0 else self.transcript.scroll_page_down)(animate=False)

    def action_newest(self) -> None:
        """To the end of the conversation, and stay there."""
        self.transcript.anchor()

    # --- what the agent says ------------------------------------------------------------------------------------

    async def ask(self, question: Question) -> Verdict:
        """Ask about a call. Implements `plugins.approval.Ask`."""
        if self._stop.cause is not None:
            return UNANSWERED
        answered: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
        dialog = Asking(question, Path(self.agent.session.journal.log.header.cwd))
        dialog_open = self.call_later(self.push_screen, dialog, lambda answer: _settle(answered, answer))
        assert dialog_open, "the application runs while its agent does"
        try:
            verdict = await answered
        except asyncio.CancelledError:
            self.call_later(self._withdraw, dialog)
            raise
        if verdict is None:
            self.action_cancel()
            return UNANSWERED
        return verdict

    def _withdraw(self, dialog: Asking) -> None:
        """Ask no more: the turn was cancelled."""
        if dialog.is_current:
            dialog.dismiss(None)

    def hear(self, notice: Notice) -> None:
        """What people should see now."""
        if self._stop.cause is None or notice.kind != "progress":
            self.transcript.hear(notice)
        self.mark()

    def say(self, text: str, tone: Tone = "quiet") -> None:
        """Say something of our own."""
        self.transcript.say(text, tone)

    # --- the lines below ----------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Something of what the lines below say has changed; they are drawn soon."""
        if not self._marked:
            self._marked = True
            self.set_timer(TICK, self._draw)

    def on_resize(self) -> None:
        """The lines below depend on the width."""
        self.mark()

    def _draw(self) -> None:
        self._marked = False
        session, base = self.opening.shown, self.screen_stack[0]
        if session is None:
            return
        width = max(self.size.width - 2, 10)
        tokens = self._tokens.of(session.journal.log)
        line = status_line(session, self.model, self.agent.mode, tokens, width)
        if self._stop.cause is not None:
            line = f"closing …  {line}"[:width]
        base.query_one("#status", Static).update(content(line))
        self._fill("#waiting", "\n".join(waiting_lines(session)))
        problem = session.journal.unsaved
        self._fill("#unsaved", f"NOT SAVED: {problem.explain()}" if problem is not None else "")

    def _fill(self, name: str, text: str) -> None:
        widget = self.screen_stack[0].query_one(name, Static)
        widget.set_class(bool(text), "shown")
        widget.update(content(text))

    # --- the end ------------------------------------------------------------------------------------------------

    async def _until_asked(self) -> None:
        await self._stop.asked.wait()
        self.prompt.disabled = True
        self._draw()
        await self.opening.called_off()
        self.failures += await self.agent.close()
        self.exit()

    def _handle_exception(self, error: Exception) -> None:
        self.fault = self.fault or error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Whoever runs this says what failed, in one line, as everywhere."""
        self._exit_renderables.clear()


def _settle(answered: asyncio.Future[Verdict | None], answer: Verdict | None) -> None:
    if not answered.done():
        answered.set_result(answer)
