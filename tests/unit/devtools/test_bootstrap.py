"""The environment of this repository is built once, however many commands ask for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools import bootstrap


def test_second_command_waits_for_the_first_and_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "cache" / "venv-1"
    built: list[Path] = []
    is_building, may_end = threading.Event(), threading.Event()

    def create(path: Path, packages: Path) -> None:
        assert packages == bootstrap.LOCK
        built.append(path)
        is_building.set()
        assert may_end.wait(10)
        (path / "bin").mkdir(parents=True)
        (path / "bin" / "python").touch()

    monkeypatch.setattr(bootstrap, "create", create)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(bootstrap.ensure, target)
        assert is_building.wait(10)
        second = pool.submit(bootstrap.ensure, target)
        may_end.set()
        first.result(10)
        second.result(10)
    assert built == [target]
