"""Files that no other user may read."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from hvd_pods.pod.private_files import write_private_file


def test_a_file_is_private_from_its_first_moment(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0))
        write_private_file(tmp_path / "key", b"secret")
    assert (tmp_path / "key").read_bytes() == b"secret"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_file_is_replaced_with_its_mode_and_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with path.open("rb") as reader:
        write_private_file(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", ["key", "key.new"])
def test_a_link_that_is_there_is_not_followed(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"of somebody else")
    (tmp_path / name).symlink_to(target)
    write_private_file(tmp_path / "key", b"secret")
    assert target.read_bytes() == b"of somebody else"
    assert (tmp_path / "key").read_bytes() == b"secret"
