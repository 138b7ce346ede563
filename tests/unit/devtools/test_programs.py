"""The archive of the pods' programs: what is left out of it, and when it is written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from devtools.docs_gen import programs

PROGRAM = '''\
"""A docstring
of two lines."""
# A comment.
X = "# no comment"  # a comment


class Empty(Exception):
    """Nothing
    else."""


def f() -> int:
    "Documented."
    text = """no
    docstring # no comment"""
    "a statement"
    if text:
        return len(
            text
        )
    return 0  # üñ
'''
STRIPPED = '''\



X = "# no comment"


class Empty(Exception):
 pass



def f() -> int:

 text = """no
    docstring # no comment"""
 "a statement"
 if text:
  return len(
text
)
 return 0
'''


def test_comments_docstrings_and_indentation_are_left_out_and_lines_stay() -> None:
    assert programs.strip(PROGRAM) == STRIPPED


def test_archive_is_the_same_whenever_it_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = programs.pack({"a/b.py": b"x"})
    monkeypatch.setattr("time.time", lambda: 1.0)
    assert programs.pack({"a/b.py": b"x"}) == first
    assert programs.read(first) == {"a/b.py": b"x"}


def test_check_names_the_programs_that_the_archive_has_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "programs.tgz"
    files = programs.contents()
    archive.write_bytes(programs.pack({**files, "shared/run.py": b"old"}))
    assert programs.write_or_compare(["--check"], archive) == 1
    assert "shared/run.py: differ" in capsys.readouterr().err
    assert programs.write_or_compare([], archive) == 0
    assert programs.read(archive.read_bytes()) == files
    assert programs.write_or_compare(["--check"], archive) == 0


def test_other_compression_is_no_difference(tmp_path: Path) -> None:
    """Each zlib has its own."""
    archive = tmp_path / "programs.tgz"
    plain = programs.pack(programs.contents())
    archive.write_bytes(gzip.compress(gzip.decompress(plain), 1))
    assert archive.read_bytes() != plain
    assert programs.write_or_compare(["--check"], archive) == 0


def test_archive_that_cannot_be_read_is_written(tmp_path: Path) -> None:
    archive = tmp_path / "programs.tgz"
    archive.write_bytes(b"x")
    assert programs.write_or_compare(["--check"], archive) == 1
    assert programs.write_or_compare([], archive) == 0
    assert programs.read(archive.read_bytes())
