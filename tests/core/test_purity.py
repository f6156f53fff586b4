"""The core does no IO, reads no clock and draws no chance; and importing the package does nothing at all."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost
from fencepost import core

SOURCES = sorted(Path(core.__file__).parent.glob("*.py"))
FORBIDDEN = {"asyncio", "time", "os", "pathlib", "random", "uuid", "logging", "threading", "socket", "io", "sys"}
LAYERS_ABOVE = {"stores", "journal", "runtime", "plugins", "apps"}


def imported(source):
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_core_imports_nothing_that_acts_or_waits(source):
    names = list(imported(source))
    assert not {name.split(".")[0] for name in names} & FORBIDDEN
    assert not {name.split(".")[1] for name in names if name.startswith("fencepost.")} & LAYERS_ABOVE


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_core_opens_nothing(source):
    called = {node.func.id for node in ast.walk(ast.parse(source.read_text("utf-8"))) if _is_plain_call(node)}
    assert not called & {"open", "exec", "eval", "input", "__import__"}


def _is_plain_call(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


WATCHED_IMPORT = """
import os, sys, threading

sys.dont_write_bytecode = True
opened = []

def watch(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)):
        path, flags = os.fsdecode(args[0]), args[2]
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or not path.endswith((".py", ".pyc", ".so", ".pth", ".pyd")):
            opened.append((event, path))
    elif event in {"socket.connect", "subprocess.Popen", "os.mkdir", "os.fork", "_thread.start_new_thread"}:
        opened.append((event, str(args)))

sys.addaudithook(watch)
import fencepost
import fencepost.core.events, fencepost.core.log, fencepost.core.batching, fencepost.core.repair
import fencepost.core.projection, fencepost.journal.writer
assert threading.active_count() == 1
assert not opened, opened
"""


def test_a_clean_import_prints_nothing_opens_no_file_and_starts_nothing():
    done = subprocess.run([sys.executable, "-c", WATCHED_IMPORT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_package_says_what_it_is():
    assert fencepost.__doc__
