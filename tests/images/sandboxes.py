"""What tests say of the sandbox that they run in: which image it is of, and which Keras it has; and
how scripts run there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_image.checks import WITH_TF_KERAS
from tests.support.in_image.sandbox import Sandbox

# What makes tf.keras Keras 3, and Keras 2; `make test` does not repeat a test with the latter.
EACH_KERAS = (
    pytest.param({}, id="keras 3"),
    pytest.param(WITH_TF_KERAS, id="keras 2", marks=pytest.mark.rare),
)
Sandboxes = Callable[[str], Sandbox]


def in_image(name: str) -> Any:
    """A fixture: the sandbox of this image."""
    return pytest.fixture(scope="session")(lambda sandboxes: sandboxes(name))


def put_files(inside: Sandbox, *files: Path) -> str:
    """Copies files of this machine into the sandbox; returns the place of the first one there."""
    for file in files:
        shutil.copy(file, inside.folder)
    return f"/output/{files[0].name}"


def put_hosts(inside: Sandbox, *hosts: str) -> None:
    """Writes the script that lists these hosts with a slot each for Horovod: /output/hosts."""
    script = inside.folder / "hosts"
    script.write_text("\n".join(["#!/bin/sh", *(f"echo {host}:1" for host in hosts)]) + "\n")
    script.chmod(0o777)


def printed_by_ranks(output: str) -> list[str]:
    """What each rank has printed after RESULT."""
    return [line.partition("RESULT ")[2] for line in output.splitlines() if "RESULT " in line]
