"""`fencepost acp`: an agent for editors, over standard input and output."""

from __future__ import annotations

import argparse

from fencepost.errors import UsageError


def main(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UsageError: the protocol's SDK is not installed.
    """
    try:
        from fencepost.apps.acp.house import Wanted
        from fencepost.apps.acp.serve import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"acp", "pydantic"}:
            raise
        raise UsageError(
            "fencepost acp needs the SDK of the Agent Client Protocol, which is not installed",
            next_act="Install it: pip install 'fencepost[acp]'",
        ) from None
    return serve(Wanted(arguments.store, arguments.model, arguments.approve))
