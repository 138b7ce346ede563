"""Changes of the user's code on this machine, as `dev` hears of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvdchart.code.archive import pack_code
from hvdchart.code.changes import code_changes
from hvdchart.errors import FileError

pytestmark = [pytest.mark.timeout(40), pytest.mark.slow]


class Watch:
    """The versions of the code at a path, which may be `given` in another way."""

    def __init__(self, path: Path, argument: Path | None = None) -> None:
        self._path = path
        self._changes = code_changes(argument or path)

    def after(self, change: Callable[[], object]) -> None:
        """Make a change while the watch waits, and wait for the version that it leads to."""
        timer = threading.Timer(1.0, change)
        timer.start()
        for version in self._changes:
            timer.join()
            if not isinstance(version, FileError) and version == pack_code(self._path):
                return


def replace(folder: Path, text: str) -> None:
    """As a tool does that writes a copy in the place of the folder."""
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    (folder / "train.py").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("1")
    return folder


@pytest.fixture
def inside(folder: Path) -> Iterator[Path]:
    """The folder, which is the working directory."""
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.mark.parametrize("name", ["", "train.py"], ids=["folder", "script"])
def test_folder_that_takes_the_place_of_another_is_watched(folder: Path, name: str) -> None:
    watch = Watch(folder / name)
    watch.after(lambda: None)
    watch.after(lambda: replace(folder, "2"))
    watch.after(lambda: (folder / "train.py").write_text("3"))


def test_working_directory_is_watched_by_its_name(inside: Path) -> None:
    """This process stays in the folder that was there before."""
    watch = Watch(inside, argument=Path())
    watch.after(lambda: None)
    watch.after(lambda: replace(inside, "2"))
    watch.after(lambda: (inside / "train.py").write_text("3"))
