"""The file tools, as a set: read, list and search; write whole files, or edit one place.

    read_file, list_files, search_files     `read`; bounded, with a note on what was left out
    write_file                              `idempotent`; the file is replaced whole
    edit_file                               `write`; a second time it would not find its text

Paths count from the session's working directory. One that leads out of it, also by a symbolic link, is asked about
(`files_place.outside`). Every failure is one sentence with a code. All of them run in threads. What became of a write
or an edit that a crash cut off is told from its receipt (`file_receipts`).
"""

from __future__ import annotations

from fencepost.plugins.files_read import list_files, read_file, search_files
from fencepost.plugins.files_write import edit_file, write_file
from fencepost.runtime.tools import Tool


def file_tools() -> tuple[Tool, ...]:
    """All of them."""
    return read_file, list_files, search_files, write_file, edit_file
