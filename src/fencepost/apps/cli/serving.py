"""`fencepost serve`: see `apps.serve`."""

from __future__ import annotations

import argparse


def main(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UsageError: the extra is not installed, or an argument is wrong.
    """
    from fencepost.apps.serve.main import main as serve

    return serve(arguments)
