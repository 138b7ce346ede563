"""A sandbox ends what runs in it."""

from __future__ import annotations

import secrets
from pathlib import Path

import psutil
import pytest

from devtools.images.build import build
from devtools.trials.sandbox import RuncSandbox, sandbox


def runs(word: str) -> bool:
    """Whether a process of this machine has the word in its command line."""
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(word in part for line in lines for part in line)


def test_container_whose_runc_was_killed_ends_with_its_sandbox(tmp_path: Path) -> None:
    """As that of a benchmark which is killed."""
    mark = f"600.{secrets.randbelow(10**9)}"
    with sandbox(build("cpu"), tmp_path / "output") as inside:
        if not isinstance(inside, RuncSandbox):
            pytest.skip("only containers of runc are ended so far")
        with inside.start("sh", "-c", f"echo up; exec sleep {mark}") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            process.kill()
        assert runs(mark), "there is nothing to end"
    assert not runs(mark)
