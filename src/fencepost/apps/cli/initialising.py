"""`fencepost init`: write a commented `fencepost.toml` into this directory, and check what it leads to.

    model     it can be made: the key is set, the file is there, the package is installed; nothing is sent
    store     it opens, and its sessions can be listed
    medium    as `fencepost doctor` does, by killing children of its own

The file is written first and whatever the checks find: it is what the user goes on with. One that is there is left
alone, unless --force says otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from fencepost.apps.cli import chosen, exits
from fencepost.apps.cli.examining import print_medium
from fencepost.apps.cli.first_file import first_file
from fencepost.apps.cli.looking import Desk, act, give
from fencepost.apps.cli.medium import Medium, examine_medium
from fencepost.apps.cli.ready import composition
from fencepost.apps.embed import model_of
from fencepost.errors import FencepostError, UsageError
from fencepost.runtime.config import FILE
from fencepost.stores.urls import open_store


class Finding(msgspec.Struct, frozen=True):
    """What was found of one thing: `name` is how it is written, null where none was chosen."""

    name: str | None
    ok: bool
    detail: str = ""
    next_act: str = ""


class Report(msgspec.Struct, frozen=True):
    """The whole of it."""

    file: str
    model: Finding
    store: Finding
    medium: Medium

    @property
    def ok(self) -> bool:
        """Whether everything that was chosen works."""
        return self.model.ok and self.store.ok and self.medium.ok


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path = chosen.directory(None) / FILE
    if arguments.store is not None:
        open_store(arguments.store)  # one that is none is said before anything is written; nothing is opened yet
    write(path, first_file(model=arguments.model, store=arguments.store), force=arguments.force)

    async def work(desk: Desk) -> int:
        report = Report(
            str(path),
            await check_model(desk),
            await check_store(desk),
            await examine_medium(desk.store, _progress),
        )
        if arguments.json:
            give(report)
        else:
            _print(report)
        return exits.DONE if report.ok else exits.OTHERWISE

    return act(arguments, work)


def write(path: Path, text: str, *, force: bool) -> None:
    """Write the file; one that is there is replaced as a whole, or not at all.

    Raises:
        UsageError: it is there already and `force` is not given, or this directory takes no file.
    """
    try:
        if force:
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        else:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{path} is there already; nothing was changed",
            next_act="See what it says with `fencepost config`, or replace it with --force",
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


async def check_model(desk: Desk) -> Finding:
    """Make the model that was chosen, and let go of it: nothing is sent."""
    spec = chosen.model_spec(None, desk.config)
    if spec is None:
        return Finding(None, ok=True, detail="none is chosen yet", next_act=chosen.NO_MODEL)
    try:
        parts = composition(desk.config.config)
        try:
            model = model_of(spec, desk.config.config.settings, os.environ)(parts)
            await model.close()
        finally:
            await parts.close()
    except FencepostError as error:
        return Finding(spec, ok=False, detail=str(error), next_act=error.next_act)
    return Finding(spec, ok=True, detail="it is set up; nothing was sent")


async def check_store(desk: Desk) -> Finding:
    """Open the store and list it."""
    try:
        names = await desk.store.sessions()
    except FencepostError as error:
        return Finding(desk.store.url, ok=False, detail=str(error), next_act=error.next_act)
    kept = "" if desk.store.durable else "; it saves nothing"
    return Finding(desk.store.url, ok=True, detail=f"{len(names)} sessions{kept}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


def _print(report: Report) -> None:
    from fencepost.apps.cli import paper

    out = paper.paper()
    out.print(paper.styled(f"wrote {report.file}"))
    for what, finding in (("model", report.model), ("store", report.store)):
        sign, style = ("", "") if finding.ok else ("WRONG: ", "bold red")
        out.print(paper.styled(f"{what:<7}{finding.name or '-'}: {sign}{finding.detail}", style))
        if finding.next_act:
            out.print(paper.styled(f"       {finding.next_act}"))
    print_medium(out, report.medium)
