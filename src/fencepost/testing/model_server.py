"""The scripted model server as a process: `python -m fencepost.testing.model_server SCRIPT [--port N] [--port-file F]`.

SCRIPT is JSON Lines: each line an answer as `script:FILE` has it, optionally with a `fault`, or a list of attempts
(`plan` says more). It prints its base URL as the first line (for chat form; for Anthropic's messages leave `/v1` out),
then `hold N` whenever an answer reaches a hold, and serves until SIGINT or SIGTERM. Holds are released when it ends.
The port file is complete when it appears.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from fencepost.plugins.script import NotAnAnswerError, numbered_lines
from fencepost.testing.plan import Fault, Hold
from fencepost.testing.server import ModelServer

__all__ = ["Fault", "Hold", "ModelServer", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal. Returns the exit code: 0, or 2 if the script cannot be read."""
    parser = argparse.ArgumentParser(prog="fencepost.testing.model_server", description="A scripted model over HTTP.")
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path)
    given = parser.parse_args(arguments)
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        script = [value for _, value in numbered_lines(given.script.read_bytes())]
        server = ModelServer(script, port=given.port, on_hold=lambda number: print(f"hold {number}", flush=True))
    except (OSError, NotAnAnswerError) as error:
        print(f"{given.script}: {error}", file=sys.stderr)
        return 2
    with server:
        print(server.url, flush=True)
        if given.port_file is not None:
            _write_whole(given.port_file, str(server.port))
        signal.sigwait(signals)
    return 0


def _write_whole(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
