"""`python -m bench`: how fast, in one run on one file system, with its own yardstick.

Nothing here is a test, and no absolute time means anything on another machine; the quotients do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bench import append, gate, listing, load, many, shell, toolcall
from bench.engines import NAMES, Engine, Name, engine
from bench.report import Machine, Row, as_json, as_table


class Effort(msgspec.Struct, frozen=True):
    """How often everything is done."""

    appends: int = 100
    gates: int = 40
    rounds: int = 7
    seconds: float = 0.5
    turns: int = 30
    loads: int = 5
    steps: int = load.FULL
    sessions: int = listing.FULL


QUICK = Effort(
    appends=10, gates=8, rounds=3, seconds=0.2, turns=5, loads=1, steps=load.FULL // 10, sessions=listing.FULL // 10
)


def main() -> None:
    """Run what is asked for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure fencepost's hot paths.")
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="where to write (default: here)")
    parser.add_argument("--store", choices=NAMES, default="jsonl", help="which store (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and a tenth of the log")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--only", action="append", choices=sorted({**MEASURES, **OF_ANY_STORE}), help="this one; may be repeated"
    )
    options = parser.parse_args()
    home: Path = options.directory or Path()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=home) as made:
        machine = _machine(Path(made))
        names = options.only or [*OF_ANY_STORE, *(MEASURES if options.store == "jsonl" else ())]
        rows = asyncio.run(_run(Path(made), QUICK if options.quick else Effort(), names, options.store))
    print(as_json(machine, rows) if options.json else as_table(machine, rows))


async def _run(directory: Path, effort: Effort, names: list[str], store: Name) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        if name in OF_ANY_STORE:
            with engine(store, directory / name) as measured:
                rows += await OF_ANY_STORE[name](measured, effort)
        else:
            rows += await MEASURES[name](directory, effort)
    return rows


OF_ANY_STORE: dict[str, Callable[[Engine, Effort], Awaitable[list[Row]]]] = {
    "gate": lambda engine, effort: gate.measure(engine, effort.gates),
    "many": lambda engine, effort: many.measure(engine, effort.rounds, effort.seconds),
    "load": lambda engine, effort: load.measure(engine, effort.loads, effort.steps),
}


MEASURES: dict[str, Callable[[Path, Effort], Awaitable[list[Row]]]] = {
    "append": lambda directory, effort: append.measure(directory, effort.appends),
    "toolcall": lambda directory, effort: toolcall.measure(directory, effort.turns),
    "shell": lambda directory, effort: shell.measure(directory, effort.appends),
    "list": lambda directory, effort: listing.measure(directory, effort.loads, effort.sessions),
}
"""Measured with JSON Lines only."""


def _machine(directory: Path) -> Machine:
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpus=os.cpu_count() or 1,
        load=os.getloadavg()[0],
        addition_ns=_addition_ns(),
        directory=str(directory.parent),
        file_system=_file_system(directory),
    )


def _addition_ns(count: int = 1_000_000, rounds: int = 5) -> float:
    """The best of some rounds, in CPU time: how fast this processor runs Python while others use it too."""
    spent = []
    for _ in range(rounds):
        begun, total = time.process_time_ns(), 0
        for number in range(count):
            total += number
        spent.append((time.process_time_ns() - begun) / count)
    return min(spent)


def _file_system(directory: Path) -> str:
    """The type of the file system, from the mount with the longest matching path; `?` where nobody says."""
    mounts = Path("/proc/self/mounts")
    if not mounts.is_file():
        return "?"
    found = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    holding = [(mount, kind) for mount, kind in found if directory.absolute().is_relative_to(mount)]
    return max(holding, key=lambda entry: len(entry[0]))[1]


if __name__ == "__main__":
    main()
