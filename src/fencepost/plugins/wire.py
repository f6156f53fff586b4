"""What the forms of model APIs have in common on the wire, out and in. No IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.core.events import Finish
from fencepost.errors import ModelError
from fencepost.runtime.models import Finished


class Form:
    """A form by name, and what is refused where a stream does not have it.

    Args:
        name: for the sentence of the error.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<Form {self._name}>"

    def an_object(self, value: object, what: str) -> dict[str, Any]:
        """`value`, an object.

        Raises:
            ModelError: `MALFORMED_STREAM`, it is none.
        """
        if not isinstance(value, dict):
            raise self.malformed(f"{what} is {type(value).__name__}")
        return value

    def an_array(self, value: object, what: str) -> list[Any]:
        """`value`, an array; an empty one where there is nothing.

        Raises:
            ModelError: `MALFORMED_STREAM`, it is none.
        """
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.malformed(f"{what} is {type(value).__name__}")
        return value

    def a_text(self, value: object, what: str) -> str:
        """`value`, a text; an empty one where there is nothing.

        Raises:
            ModelError: `MALFORMED_STREAM`, it is none.
        """
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.malformed(f"{what} is {type(value).__name__}")
        return value

    def malformed(self, what: str) -> ModelError:
        """The error for a stream of which `what` is true."""
        return ModelError(f"the stream is not in {self._name} form: {what}", code="MALFORMED_STREAM", retryable=True)


def count(value: object) -> int:
    """A number of tokens; 0 where it is none."""
    return value if isinstance(value, int) and value > 0 else 0


def finished(reason: str, finishes: Mapping[str, Finish], failures: frozenset[str], *, shown: bool) -> Finished:
    """The end that a provider's own words stand for. A new word ends an answer, if anything came before it.

    Args:
        reason: the provider's word.
        finishes: the words of the form.
        failures: words that say that the provider broke off.
        shown: whether anything came before it.

    Raises:
        ModelError: `PROVIDER_ERROR`, this is no answer.
    """
    finish = finishes.get(reason.lower())
    if finish is None and (reason.lower() in failures or not shown):
        raise ModelError(
            f"the provider broke off with the finish reason {reason!r}", code="PROVIDER_ERROR", retryable=True
        )
    return Finished(finish or "stop")
