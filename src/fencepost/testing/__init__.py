"""For the tests of those who build on fencepost: models that do what a test says, without a network or with a real one.

    ScriptedModel   in memory: answers, failures, cut and paused streams, in the order in which they are given
    ModelServer     a real HTTP server on this machine that speaks OpenAI chat completions and Anthropic's messages from
                    a script, and misbehaves on request
    pairing_problem what a strict provider would say about a transcript; anthropic_problem, in the other form

These are honest fakes: they refuse what a strict provider refuses. Nothing in fencepost imports them.
"""

from fencepost.testing.pairing import pairing_problem
from fencepost.testing.pairing_anthropic import anthropic_problem
from fencepost.testing.plan import Fault, Hold
from fencepost.testing.scripted import Cut, Pause, ScriptedModel
from fencepost.testing.server import ModelServer

__all__ = ["Cut", "Fault", "Hold", "ModelServer", "Pause", "ScriptedModel", "anthropic_problem", "pairing_problem"]
