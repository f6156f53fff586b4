"""Every test gets a directory with a place to work in, and no configuration but its own."""

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with `work` and, once something is stored, `store`."""
    (tmp_path / "work").mkdir(exist_ok=True)  # the command line may have one there already
    monkeypatch.chdir(tmp_path / "work")
    for name in ("FENCEPOST_MODEL", "FENCEPOST_STORE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path
