"""The public API: what is exported is there, importing does nothing, and every example that is shown runs."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fencepost
from fencepost.testing import ModelServer

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fencepost"

PREAMBLE = """
import asyncio
import fencepost as fp

@fp.tool(effect="write")
async def send_mail(to: str, body: str) -> str:
    "Send one mail."
    return f"sent to {to}"

@fp.tool(effect="read")
async def list_files() -> str:
    "List."
    return "a b"
"""

SCRIPT = [
    {"tool_calls": [{"function": {"name": "send_mail", "arguments": {"to": "ada@example.org", "body": "green"}}}]},
    {"content": "Ada knows."},
]


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", fencepost.__all__)
def test_every_exported_name_is_there(name):
    value = getattr(fencepost, name)
    assert name in dir(fencepost)
    assert value.__doc__ or (not inspect.isclass(value) and not inspect.isfunction(value))


def test_a_name_that_is_not_exported():
    with pytest.raises(AttributeError, match="no_such"):
        fencepost.no_such  # noqa: B018


def test_exported_names_are_grouped_without_repetition():
    assert len(set(fencepost.__all__)) == len(fencepost.__all__)


# --- importing --------------------------------------------------------------------------------------------------


def child(program, directory, **environ):
    """Run a program in a process and a directory of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FENCEPOST", "OPENAI", "XDG"))}
    return subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", textwrap.dedent(program)],
        cwd=directory,
        env={**clean, "HOME": str(directory), "TMPDIR": str(directory), **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("program", ["import fencepost", "from fencepost import *", "import fencepost.testing"])
def test_importing_prints_nothing_makes_no_file_and_starts_no_thread(program, tmp_path):
    done = child(f"{program}\nimport threading\nassert threading.active_count() == 1", tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert list(tmp_path.rglob("*")) == []


def test_opening_a_runtime_makes_no_file_either(tmp_path):
    """Nothing is stored before there is something to store."""
    program = """
        import asyncio, fencepost as fp
        async def main():
            async with fp.open("jsonl:./sessions") as runtime:
                assert await runtime.sessions() == []
        asyncio.run(main())
    """
    done = child(program, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert list(tmp_path.rglob("*")) == []


# --- examples ---------------------------------------------------------------------------------------------------


def fenced(path):
    """The Python blocks of a Markdown file."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def indented(docstring):
    """The indented blocks of a docstring that are Python and use what we export."""
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", docstring + "\n", re.MULTILINE)
    found = [textwrap.dedent(block).strip() for block in blocks]
    return [block for block in found if re.search(r"\bfp\.|import fencepost|= ScriptedModel\(", block)]


def docstrings():
    """`module line: block` for each example in a docstring of the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for block in indented(ast.get_docstring(node) or ""):
                    yield pytest.param(block, id=f"{path.relative_to(SOURCE)}:{getattr(node, 'name', 'module')}")


def documents():
    """The same for each example in a document."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, block in enumerate(fenced(path), start=1):
            yield pytest.param(block, id=f"{path.relative_to(ROOT)}:{number}")


def runnable(block):
    """A program that runs the block: what stands on its own as it is, a piece of a coroutine inside of one."""
    try:
        tree = ast.parse(block)
        compile(tree, "example", "exec")
    except SyntaxError:
        inside = textwrap.indent(block, "    ")
        return f"{PREAMBLE}\nfrom fencepost import *\nasync def main():\n{inside}\nasyncio.run(main())"
    defines = {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    runs = "asyncio.run(main())" if "main" in defines and "asyncio.run(" not in block else ""
    return f"{PREAMBLE}\nfrom fencepost import *\n{block}\n{runs}"


@pytest.fixture(scope="module")
def endpoint():
    """A real endpoint behind `openai:`."""
    with ModelServer(SCRIPT) as server:
        yield {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "not-needed"}


@pytest.fixture(scope="module")
def lived_in(endpoint, tmp_path_factory):
    """A directory with one session in it."""
    directory = tmp_path_factory.mktemp("lived_in")
    program = f"""{PREAMBLE}
async def main():
    async with fp.open("jsonl:./sessions", model="openai:gpt-5", tools=[send_mail]) as runtime:
        session = await runtime.create()
        print((await session.prompt("Tell Ada.")).text)
asyncio.run(main())
"""
    done = child(program, directory, **endpoint)
    assert (done.stdout, done.stderr) == ("Ada knows.\n", "")
    return directory


EXAMPLES = [*documents(), *docstrings()]


@pytest.mark.parametrize("block", EXAMPLES)
def test_every_example_runs(block, lived_in, endpoint, tmp_path):
    directory = tmp_path / "here"
    shutil.copytree(lived_in, directory)
    done = child(runnable(block), directory, **endpoint)
    assert (done.stderr, done.returncode) == ("", 0)


def test_there_are_examples():
    ids = {param.id for param in EXAMPLES}
    assert {"README.md:1", "README.md:2", "__init__.py:module", "apps/embed.py:module"} <= ids


def test_a_complete_agent_fits_in_15_lines():
    first = fenced(ROOT / "README.md")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 15
