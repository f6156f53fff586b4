"""`fencepost` and `fencepost chat`: see `apps.tui`."""

from __future__ import annotations

import argparse


def main(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UsageError: there is no terminal, or the extra is not installed.
    """
    from fencepost.apps.tui.main import main as chat

    return chat(arguments)
