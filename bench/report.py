"""What a run of the benchmarks found: rows with their aims, as a table for people and as JSON for programs."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from bench.sample import Sample

Bound: TypeAlias = Literal["at most", "at least", "under"]


class Aim(msgspec.Struct, frozen=True):
    """What the median of a row should reach."""

    bound: Bound
    value: float

    def met(self, median: float) -> bool:
        """Whether it does."""
        if self.bound == "at most":
            return median <= self.value
        return median < self.value if self.bound == "under" else median >= self.value

    def __str__(self) -> str:
        return f"{self.bound} {self.value:g}"


class Row(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        name: what was measured.
        unit: of both numbers.
        sample: the numbers.
        aim: for the median; None where the row is there for comparison only.
        note: what a reader has to know to judge it.
    """

    name: str
    unit: str
    sample: Sample
    aim: Aim | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without one."""
        return None if self.aim is None else self.aim.met(self.sample.median)


class Machine(msgspec.Struct, frozen=True):
    """Where the run took place: without it the absolute numbers say nothing.

    Attributes:
        load: processes that wanted to run, over the last minute before the start.
        addition_ns: what one turn of `for i in range(n): x += i` takes: 45 to 50 on a quiet server of 2024, twice that
            where two processes share a core. Whatever is Python's own part in the rows grows with it.
    """

    python: str
    system: str
    cpus: int
    load: float
    addition_ns: float
    directory: str
    file_system: str


_HEADS = ("measured", "median", "p90", "unit", "aim", "met", "n")


def as_table(machine: Machine, rows: list[Row]) -> str:
    """The rows as aligned text, each note below the table."""
    notes: list[str] = []
    cells = [_HEADS]
    for row in rows:
        mark = ""
        if row.note:
            if row.note not in notes:
                notes.append(row.note)
            mark = f" [{notes.index(row.note) + 1}]"
        cells.append(
            (
                row.name + mark,
                _number(row.sample.median),
                _number(row.sample.p90),
                row.unit,
                str(row.aim or ""),
                {True: "yes", False: "NO", None: ""}[row.met],
                str(row.sample.count),
            )
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADS))]
    lines = ["  ".join(_cell(text, column, widths[column]) for column, text in enumerate(line)) for line in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    place = f"{machine.cpus} CPUs, load {machine.load:.1f} at the start; {machine.directory} on {machine.file_system}"
    where = (
        f"Python {machine.python}, {machine.system}, {place}\n"
        f"An addition in a loop takes {machine.addition_ns:.0f} ns (45 to 50 on a quiet machine)."
    )
    return "\n".join([where, "", *(line.rstrip() for line in lines), "", *_numbered(notes)])


def as_json(machine: Machine, rows: list[Row]) -> str:
    """One object: `machine`, and `rows` with `met` beside each aim."""
    plain = [{**msgspec.to_builtins(row), "met": row.met} for row in rows]
    return msgspec.json.encode({"machine": machine, "rows": plain}).decode()


def _numbered(notes: list[str]) -> list[str]:
    return [f"[{number}] {note}" for number, note in enumerate(notes, start=1)]


def _cell(text: str, column: int, width: int) -> str:
    return text.rjust(width) if column in {1, 2, 6} else text.ljust(width)


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"
