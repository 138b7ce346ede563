"""Versions of the code: each saved change once, whatever the editor does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdchart.code.changes import CodeChanges
from hvdchart.errors import FileError
from hvdchart.spec.yaml_tree import Plain

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("first")
    return path


def text(version: dict[str, Plain] | FileError) -> Plain:
    """The content of the only file of a version."""
    assert isinstance(version, dict), version
    files = version["files"]
    assert isinstance(files, dict)
    return files["train.py"]


def versions(path: Path) -> Iterator[dict[str, Plain] | FileError]:
    return iter(CodeChanges(path))


@pytest.mark.slow
def test_saved_script_is_a_new_version(script: Path) -> None:
    changes = versions(script)
    assert text(next(changes)) == "first"
    script.write_text("second")
    assert text(next(changes)) == "second"
    # As vim and others save: a new file takes the place of the old one.
    beside = script.with_suffix(".new")
    beside.write_text("third")
    beside.replace(script)
    assert text(next(changes)) == "third"


def test_later_loop_goes_on_with_the_next_version(script: Path) -> None:
    code = CodeChanges(script)
    assert text(next(iter(code))) == "first"
    script.write_text("second")
    assert text(next(iter(code))) == "second"


@pytest.mark.slow
def test_ignored_files_and_equal_content_are_no_version(tmp_path: Path, script: Path) -> None:
    (tmp_path / ".hvdignore").write_text("*.log\n")
    changes = versions(tmp_path)
    first = next(changes)
    (tmp_path / "a.log").write_text("noise")
    script.write_text("first")
    script.write_text("second")
    second = next(changes)
    script.write_text("first")
    assert next(changes) == first != second


@pytest.mark.slow
def test_vanished_script_is_an_error_until_it_is_back(script: Path) -> None:
    changes = versions(script)
    next(changes)
    script.unlink()
    gone = next(changes)
    assert isinstance(gone, FileError)
    assert "train.py: cannot read the code" in str(gone)
    script.write_text("back")
    assert text(next(changes)) == "back"
