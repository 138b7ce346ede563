"""examples/pipeline.py: which files a rank gets, and what is refused before training begins."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from examples.pipeline import Shards


def write(file: Path, *lengths: int) -> Path:
    """A TFRecord file; nobody looks at its checksums here."""
    parts = [
        struct.pack("<Q", length) + b"\0" * 4 + b"\1" * length + b"\0" * 4 for length in lengths
    ]
    file.write_bytes(b"".join(parts))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven shards; number k has k + 1 records."""
    for number in range(7):
        write(tmp_path / f"train-{number}.tfrecord", *range(number + 1))
    (tmp_path / "README.txt").write_text("about the data")
    return tmp_path


@pytest.fixture
def half_written(folder: Path) -> Path:
    """A shard whose second record is not complete."""
    shard = write(folder / "train-3.tfrecord", 20, 8)
    shard.write_bytes(shard.read_bytes()[:-23])
    return shard


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_each_shard_belongs_to_one_rank(folder: Path, size: int) -> None:
    ranks = [Shards.of_rank(folder, rank, size) for rank in range(size)]
    assert [shards.rank for shards in ranks] == list(range(size))
    owned = sorted(Path(file).name for shards in ranks for file in shards.files)
    assert owned == [f"train-{number}.tfrecord" for number in range(7)]
    assert sum(shards.records for shards in ranks) == sum(range(8))
    sizes = [len(shards.files) for shards in ranks]
    assert max(sizes) - min(sizes) <= 1


def test_an_epoch_has_whole_batches_of_the_rank_and_at_least_one(folder: Path) -> None:
    first = Shards.of_rank(folder, 0, 2)
    assert first.records == 1 + 3 + 5 + 7
    assert first.steps(5) == 3
    assert first.steps(16) == 1
    with pytest.raises(SystemExit, match="rank 0 has 1 records, fewer than a batch of 2"):
        Shards.of_rank(folder, 0, 7).steps(2)


def refuse(words: str, folder: Path, rank: int = 0, size: int = 1) -> None:
    with pytest.raises(SystemExit, match=re.escape(words)):
        Shards.of_rank(folder, rank, size)


def test_more_ranks_than_shards_are_refused_on_each_rank(folder: Path) -> None:
    for rank in range(8):
        refuse(f"{folder}: 7 shards for 8 ranks", folder, rank, 8)


def test_half_written_shard_is_refused(folder: Path, half_written: Path) -> None:
    refuse(f"{half_written}: 37 bytes end in record 2", folder)


def test_half_written_shard_is_refused_by_the_rank_that_has_it(
    folder: Path, half_written: Path
) -> None:
    """The others need not read it."""
    Shards.of_rank(folder, 0, 2)
    refuse(str(half_written), folder, 1, 2)


def test_file_of_another_format_is_refused(folder: Path) -> None:
    shard = folder / "train-3.tfrecord"
    shard.write_bytes(b"\x89PNG" * 100)
    refuse("400 bytes end in record 1: it is half written, or not a TFRecord file", folder)
