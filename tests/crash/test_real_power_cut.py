"""Real power cuts, on ext4 and xfs: a file system in an image is shut down without flushing anything, under a living
agent, and mounted again. What its journal did not have on the medium is gone, as when the plug is pulled.

Needs root, loop devices and the file system's mkfs; skipped with the reason where one is missing. Whatever happens, the
mount and its loop device are gone afterwards.
"""

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import PROMPTS, SCRIPT, Place, await_that, ended, kill
from tests.crash.world import twice

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN, from the kernel's XFS and ext4 headers."""

NO_FLUSH = struct.pack("I", 2)
"""Its argument: stop at once, write neither data nor the journal."""

KINDS = {
    "ext4": (["mkfs.ext4", "-q", "-F"], 64 << 20),
    "xfs": (["mkfs.xfs", "-q", "-f"], 320 << 20),
}

POINTS = [("request", 1), ("entered", 1), ("shown", 2), ("done", 3), ("ended", 1), ("ack", 2), ("done", 4)]
"""Where the plug is pulled: when the world has so many lines of a kind."""


class Medium:
    """A file system in an image file, mounted through a loop device."""

    def __init__(self, image: Path, mount: Path) -> None:
        self._image = image
        self.mount = mount
        self._mounted = False

    def plug_in(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.mount], check=True, capture_output=True)
        self._mounted = True

    def pull_the_plug(self) -> None:
        fd = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, NO_FLUSH)
        finally:
            os.close(fd)

    def unplug(self) -> None:
        """Unmount; the loop device goes with the mount."""
        if self._mounted:
            subprocess.run(["umount", self.mount], check=True, capture_output=True)
            self._mounted = False

    def abandon(self) -> None:
        """Unmount by any means."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.unplug()
        if self._mounted:
            subprocess.run(["umount", "-l", self.mount], check=False, capture_output=True)


@pytest.fixture(params=sorted(KINDS))
def medium(request, tmp_path):
    """A fresh file system of each kind, mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting an image needs root")
    make, size = KINDS[request.param]
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    try:
        subprocess.run([*make, image], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip(f"{make[0]} is not installed")
    medium = Medium(image, mount)
    try:
        medium.plug_in()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a {request.param} image cannot be mounted here: {error.stderr.decode().strip()}")
    yield medium
    medium.abandon()


@contextlib.contextmanager
def dark(place: Place) -> Iterator[None]:
    """What the world saw behind the cut did not happen: the machine was off.

    Here the child lives on for a moment, and a sync that is under way when the file system is shut down may tell it
    that all is well (ext4 does not report what its end of a write meets then). Without power nobody would hear that.
    """
    seen = place.world.read_bytes()
    yield
    place.world.write_bytes(seen)


def cut(medium: Medium, place: Place, kind: str, count: int) -> None:
    """Run an agent, pull the plug at a point, and plug in again."""
    unsynced = medium.mount / f"unsynced-{kind}-{count}"
    with ended(place.start("--early", *PROMPTS)) as child:
        await_that(lambda: len(place.saw(kind)) >= count, child)
        unsynced.write_text("this was never synced")
        with dark(place):
            medium.pull_the_plug()
            kill(child)
    medium.unplug()
    medium.plug_in()
    assert not unsynced.exists() or unsynced.read_text() == "", "the plug was not pulled: what was not synced is there"


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
def test_a_real_power_cut(medium, tmp_path, scheme):
    for number, (kind, count) in enumerate(POINTS):
        place = Place(tmp_path / f"home-{number}", SCRIPT, medium.mount / f"sessions-{number}", scheme)
        cut(medium, place, kind, count)
        place.check(whole=False)
        place.finish("--continue")
        judged = place.check(whole=False)
        assert judged.view.state == "clean"
        assert judged.view.pending_inputs == ()
        assert not twice(place.witness().done)


def test_power_cuts_one_after_another(medium, tmp_path):
    """One session, cut again and again, also while it is being repaired and gone on with."""
    place = Place(tmp_path / "home", SCRIPT, medium.mount / "sessions")
    cut(medium, place, "entered", 1)
    place.check(whole=False)
    for already in range(2, 6):
        with ended(place.start("--continue")) as child:
            await_that(lambda wanted=already: len(place.saw("request")) >= wanted or child.poll() is not None, child)
            with dark(place):
                medium.pull_the_plug()
                kill(child)
        medium.unplug()
        medium.plug_in()
        place.check(whole=False)
    place.finish("--continue")
    assert place.check(whole=False).view.state == "clean"
    assert not twice(place.witness().done)
