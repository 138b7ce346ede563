"""The cache directory and cache keys: a key changes with every input and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common.cache import cache_dir, content_key


def test_hvd_cache_overrides_the_xdg_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.delenv("HVD_CACHE", raising=False)
    assert cache_dir() == Path("/xdg/hvd")
    monkeypatch.setenv("HVD_CACHE", "/elsewhere")
    assert cache_dir() == Path("/elsewhere")


def test_relative_xdg_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HVD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == Path.home() / ".cache" / "hvd"


def write_files(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def test_key_is_the_same_in_another_directory_and_order(tmp_path: Path) -> None:
    here = write_files(tmp_path / "a" / "module", one="1", two="2")
    there = write_files(tmp_path / "b" / "module", two="2", one="1")
    assert content_key([here]) == content_key([there])
    files = [here / "one", here / "two"]
    assert content_key(files) == content_key(reversed(files))


@pytest.mark.parametrize(
    "other",
    [
        {"one": "1", "two": "3"},  # contents
        {"one": "1", "other": "2"},  # a name
        {"one": "1"},  # a file is missing
        {"one": "12", "two": ""},  # a byte that moved
    ],
)
def test_key_changes_with_every_name_and_byte(tmp_path: Path, other: dict[str, str]) -> None:
    before = write_files(tmp_path / "a" / "module", one="1", two="2")
    after = write_files(tmp_path / "b" / "module", **other)
    assert content_key([before]) != content_key([after])


def test_key_changes_with_each_extra_text(tmp_path: Path) -> None:
    module = write_files(tmp_path / "module", one="1")
    keys = {content_key([module], *extra) for extra in ([], ["a"], ["b"], ["a", "b"], ["ab"])}
    assert len(keys) == 5


def test_compiled_python_does_not_change_the_key(tmp_path: Path) -> None:
    module = write_files(tmp_path / "module", one="1")
    before = content_key([module])
    write_files(module / "__pycache__", one="x")
    assert content_key([module]) == before


def test_missing_file_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        content_key([tmp_path / "absent"])
