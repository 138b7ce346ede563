"""The command `build --watch`, as a process of its own: a Docker that records its calls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.common.repository import ROOT
from devtools.common.waiting import wait_until
from tests.support.fakes.program import StubProgram

pytestmark = [pytest.mark.timeout(40), pytest.mark.slow]
NAME = "host:5000/team/r"


class Build:
    """A running `hvdchart build --watch`, and the folder that it watches."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.save("of build 1")
        command = [sys.executable, "-m", "hvdchart", "build", str(folder), "--image", NAME]
        command += ["--push", "--watch"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def save(self, text: str) -> None:
        """Save the script in one step: nobody reads half of it."""
        beside = self._folder.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self._folder / "train.py")

    def printed(self) -> str:
        """The name of the next image that is built."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a Dockerfile."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM a\n")
    return folder


@contextmanager
def building(folder: Path) -> Iterator[Build]:
    build = Build(folder)
    try:
        yield build
    finally:
        build.process.kill()
        build.process.communicate()


def test_file_that_is_saved_during_the_first_build_is_built(
    folder: Path, docker: StubProgram
) -> None:
    with building(folder) as build:
        with docker.hold("push"):
            wait_until(lambda: "push" in docker.commands(), 30, "the first push")
            build.save("of build 2")
        assert build.printed() != build.printed()


def test_each_save_is_built_once(folder: Path, docker: StubProgram) -> None:
    with building(folder) as build:
        for number in range(1, 4):
            build.printed()
            # Another build would begin by now.
            with pytest.raises(subprocess.TimeoutExpired):
                build.process.wait(1.0)
            assert docker.commands().count("push") == number
            build.save(f"of build {number + 1}")
