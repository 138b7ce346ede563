"""Files are written whole or not at all, and only files are replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdchart.errors import FileError
from hvdchart.files import write_atomically


def test_what_cannot_be_written_whole_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("old\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "half of it \ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["values.yaml"]
    assert file.read_text() == "old\n"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write: No such file"):
        write_atomically(tmp_path / "missing" / "values.yaml", "")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "of-the-team.yaml", tmp_path / "values.yaml"
    target.write_text("old\n")
    link.symlink_to(target)
    write_atomically(link, "new\n")
    assert (link.is_symlink(), target.read_text()) == (True, "new\n")


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    """As /dev/null and /dev/stdout: replaced by a file it would be gone for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, "values\n")
        assert os.read(reader, 100) == b"values\n"
        assert pipe.is_fifo()
    finally:
        os.close(reader)
