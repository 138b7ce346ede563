"""Files are replaced in one step, and only regular files are replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdchart.errors import FileError
from hvdchart.files import write_atomically


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("old\n")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FileError, match=r"values\.yaml: cannot write: No space left on device"):
        write_atomically(file, "new\n")
    assert [path.name for path in tmp_path.iterdir()] == ["values.yaml"]
    assert file.read_text() == "old\n"


def test_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "of-the-team.yaml"
    link = tmp_path / "values.yaml"
    target.write_text("old\n")
    link.symlink_to(target)
    write_atomically(link, "new\n")
    assert (link.is_symlink(), target.read_text()) == (True, "new\n")


def test_pipe_is_written_to(tmp_path: Path) -> None:
    """As /dev/null and /dev/stdout are: a file in their place would be a loss for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, "values\n")
        assert os.read(reader, 100) == b"values\n"
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_pipe_without_a_path_of_its_own_is_written_to() -> None:
    """/dev/stdout is such a link where the output of a command goes to another one."""
    reader, writer = os.pipe()
    try:
        write_atomically(Path(f"/dev/fd/{writer}"), "values\n")
        assert os.read(reader, 100) == b"values\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_link_without_a_target_of_its_own_stays(tmp_path: Path) -> None:
    link = tmp_path / "values.yaml"
    link.symlink_to(link)
    with pytest.raises(FileError, match=r"values\.yaml: cannot write: Too many levels"):
        write_atomically(link, "new\n")
    assert link.is_symlink()
