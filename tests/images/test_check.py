"""`hvdchart image check` on a good, a bad and a missing image, with the engine of this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.images.engines import Build
from devtools.trials.sandbox import Sandbox

BAD = "hvd-test-bad-image:1"


def check(image: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hvdchart", "image", "check", image, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def bad(cpu: Sandbox, tmp_path: Path) -> Iterator[str]:
    """The CPU image without an SSH server and mpirun."""
    file = tmp_path / "Dockerfile"
    gone = "/usr/sbin/sshd /usr/bin/mpirun"
    file.write_text(f"FROM {cpu.image.reference}\nUSER 0\nRUN rm {gone}\nUSER 1000\n")
    cpu.image.engine.build(Build(tmp_path, file, [BAD], {}, {}, "bad"))
    yield BAD
    cpu.image.engine.remove(BAD)


def test_our_own_image_meets_all_requirements(cpu: Sandbox) -> None:
    engine = cpu.image.engine.program
    done = check(cpu.image.reference, "--engine", engine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with mpi, gloo" in done.stdout
    assert "--" not in done.stdout


def test_image_without_programs_is_refused_with_remedies(bad: str) -> None:
    done = check(bad)
    assert done.returncode == 9, done.stdout + done.stderr
    assert "install openssh-server" in done.stdout
    assert "cannot be used with launch.mode mpirun; missing: sshd, mpirun" in done.stderr
