"""Errors that only a store of files has."""

from __future__ import annotations

from pathlib import Path

from fencepost.errors import SessionNotFoundError, UsageError


def not_found(session: str, root: Path) -> SessionNotFoundError:
    """There is no such session under `root`."""
    return SessionNotFoundError(f"no session {session} in {root}")


def not_a_directory(root: Path) -> UsageError:
    """The store's root is something else than a directory."""
    return UsageError(f"{root} is not a directory", next_act="Name a directory with --store jsonl:DIR")
