"""A whole agent in a test: the real runtime over a scripted model, and a store that fails or waits where a test says.

`TouchyStore` wraps a real store and changes nothing but what a rule says about a batch: it raises, or it stands still
until it is released. Names come from a counter and time from a constant, so that logs can be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from fencepost.core import events as ev
from fencepost.core.codec import expand
from fencepost.errors import NoSpaceError
from fencepost.journal.session import Identity
from fencepost.plugins.checkpoint import Checkpoint
from fencepost.plugins.shipped import ToolsPlugin
from fencepost.runtime.hooks import Position
from fencepost.runtime.runtime import Runtime, Settings
from fencepost.runtime.toolrun import ToolRules
from fencepost.stores.memory import MemoryStore
from fencepost.testing import ScriptedModel

QUICK = ToolRules(settle=0.01, drain=0.05)
"""Rules for tests in which a body, a hook or a model does not stop by itself."""

FULL = NoSpaceError("no space left on this test")


_numbers = itertools.count(1)


def identity(clock=lambda: 1_700_000_000_000) -> Identity:
    """Names from a counter, and time that stands still unless the test moves it."""
    return Identity("tester", clock, lambda prefix: f"{prefix}{next(_numbers)}")


def call(name, arguments=None, **more):
    """A tool call as a script line has it."""
    return {"function": {"name": name, "arguments": {} if arguments is None else arguments}, **more}


def calls(*given, content=None):
    """An answer that asks for some calls."""
    return {"content": content, "tool_calls": list(given)}


# --- the store --------------------------------------------------------------------------------------------------


class Rule:
    """What happens to the batches that hold an event of one of some kinds.

    Attributes:
        reached: set when a batch stands still here.
        release: set it to let that one, and all later ones, pass.
        met: batches that this rule was about.
    """

    def __init__(self, kinds, error):
        self.kinds = kinds
        self.error = error
        self.reached = asyncio.Event()
        self.release = asyncio.Event()
        self.met = 0

    def off(self):
        """From now on nothing happens here."""
        self.kinds = ()
        self.release.set()

    async def act(self):
        self.met += 1
        if self.error is not None:
            raise self.error
        self.reached.set()
        await self.release.wait()


class TouchyStore:
    """See the module."""

    def __init__(self, inner=None):
        self.inner = inner or MemoryStore()
        self.rules = []
        self.batches = []
        self.released = []

    def fail(self, *kinds, error=FULL):
        """Every batch with an event of these kinds fails (of any kind, if none is given)."""
        self.rules.append(Rule(kinds or (ev.Event,), error))
        return self.rules[-1]

    def hold(self, *kinds):
        """Every batch with an event of these kinds stands still until it is released."""
        self.rules.append(Rule(kinds or (ev.Event,), None))
        return self.rules[-1]

    @property
    def url(self):
        return self.inner.url

    @property
    def durable(self):
        return self.inner.durable

    @property
    def ownership(self):
        return self.inner.ownership

    def files(self, session):
        return self.inner.files(session)

    async def create(self, header):
        return TouchyHandle(self, await self.inner.create(header))

    async def own(self, session):
        return TouchyHandle(self, await self.inner.own(session))

    async def read(self, session):
        return await self.inner.read(session)

    async def sessions(self):
        return await self.inner.sessions()

    async def close(self):
        await self.inner.close()

    def kinds(self):
        """The event types of each batch that landed."""
        return [[event.type_name() for event in batch] for batch in self.batches]


class TouchyHandle:
    def __init__(self, store, inner):
        self.store = store
        self.inner = inner

    @property
    def stored(self):
        return self.inner.stored

    async def append(self, entries, expected_seq):
        events = [event for entry in entries for event in expand(entry)]
        for rule in list(self.store.rules):
            if any(isinstance(event, rule.kinds) for event in events):
                await rule.act()
        await self.inner.append(entries, expected_seq)
        self.store.batches.append(events)

    async def set_aside(self):
        return await self.inner.set_aside()

    async def release(self):
        self.store.released.append(self.stored.session)
        await self.inner.release()


class At:
    """A plugin with one hook."""

    requires = ()

    def __init__(self, point, hook, position=Position.POLICY, name="at"):
        self.name = name
        self.point, self.hook, self.position = point, hook, position

    def apply(self, context):
        context.hook(lambda hooks: getattr(hooks, self.point), self.position, self.hook)


# --- the agent --------------------------------------------------------------------------------------------------


class Agent:
    """A runtime with one session.

    Args:
        answers: of the scripted model; or a model.
        tools: offered.
        plugins: composed behind the checkpoint.
        gates: whether the checkpoint is composed.
        store: a `TouchyStore` over memory if left out.
        rules: of the tool pipeline.
        configured: settings of plugins.
        session: its id; resumed if the store has it already.
        cwd: where a new session works.
        who: an identity with a clock of the test's own.
    """

    def __init__(
        self,
        answers=(),
        *,
        tools=(),
        plugins=(),
        gates=True,
        store=None,
        rules=None,
        configured=None,
        session="s1",
        cwd=None,
        who=None,
    ):
        self.model = answers if hasattr(answers, "stream") else ScriptedModel(answers)
        self.store = store or TouchyStore()
        composed = [*([Checkpoint()] if gates else []), ToolsPlugin("tools", tools), *plugins]
        self.runtime = Runtime(
            self.store, self.model, composed, Settings("be brief", rules or QUICK), configured, who or identity()
        )
        self.notices = []
        self._name = session
        self._cwd = cwd

    async def __aenter__(self):
        stored = await self.store.sessions()
        runtime = self.runtime
        known = self._name in stored
        self.session = await (runtime.resume(self._name) if known else runtime.create(self._name, self._cwd))
        self.session.on_notice(self.notices.append)
        self.log = self.session.journal.log
        return self

    async def __aexit__(self, kind, error, trace):
        # A test that left the store broken must not fail for that at the very end.
        for rule in getattr(self.store, "rules", ()):
            rule.off()
        await self.runtime.close()

    def events(self, kind=ev.Event):
        """The events of one kind, in order."""
        return [event for event in self.log.events() if isinstance(event, kind)]

    def one(self, kind):
        """The only event of one kind."""
        (found,) = self.events(kind)
        return found

    def results(self):
        """`call name: code` of each result, in the order in which they were appended."""
        return [f"{self.log.fold.calls[one.call_id].name}: {one.code or 'ok'}" for one in self.events(ev.ToolResult)]

    def text(self, name):
        """The result's text of the only call to a tool of this name."""
        (found,) = [record for record in self.log.fold.calls.values() if record.name == name]
        return ev.text_of(found.result.content)

    def shape(self, start=0):
        """The event types from some seq on; runs of chunks count once."""
        names = [event.type_name() for event in self.log.events(start)]
        return [name for name, _ in itertools.groupby(names)]


def balanced(log):
    """Whether every call has its result, and nothing is open."""
    fold = log.fold
    return not fold.owed and fold.state.value == "idle" and all(one.result for one in fold.calls.values())


def run(scenario):
    """Run a scenario; a test that hangs is a test that fails."""
    return asyncio.run(asyncio.wait_for(scenario(), 20))


async def until(condition):
    """Give the event loop to others until something holds."""
    while not condition():  # noqa: ASYNC110 - what is waited for is a fact of the log, which sets no event
        await asyncio.sleep(0)


async def ended(task):
    """Wait for a task's end, whatever it is."""
    with contextlib.suppress(BaseException):
        await task
