"""The size guides of the design: a file under 400 lines, a function under 60, nine functions in ten within 30."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
FILE, FUNCTION, MOST = 400, 60, 30


def functions() -> dict[str, int]:
    """Lines of each function, by place."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                found[f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"] = node.end_lineno - node.lineno + 1
    return found


def test_files_are_short() -> None:
    lines = {str(path.relative_to(SOURCE)): path.read_bytes().count(b"\n") for path in SOURCE.rglob("*.py")}
    offenders = {name: count for name, count in lines.items() if count > FILE}
    print(offenders)
    assert not offenders


def test_functions_are_short() -> None:
    sizes = functions()
    offenders = {name: count for name, count in sizes.items() if count > FUNCTION}
    print(offenders)
    assert not offenders
    assert sorted(sizes.values())[len(sizes) * 9 // 10] <= MOST
