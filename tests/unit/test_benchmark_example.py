"""examples/benchmark.py, without TensorFlow: what is refused before training begins."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from tests.unit.test_pipeline import write

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmark.py"
RANKS = 2


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on rank 1 of 2."""
    horovod = MagicMock(**{"rank.return_value": 1, "size.return_value": RANKS})
    modules = {
        "tensorflow": MagicMock(),
        "horovod": MagicMock(tensorflow=horovod),
        "horovod.tensorflow": horovod,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("benchmark_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_each_rank_reads_files_of_its_own(benchmark: ModuleType, tmp_path: Path) -> None:
    files = [write(tmp_path / f"train-{number}", 5, number) for number in range(4)]
    assert benchmark.own_files(tmp_path) == [str(files[1]), str(files[3])]


def refused(benchmark: ModuleType, folder: Path) -> str:
    """Why the files cannot be used."""
    with pytest.raises(SystemExit) as ended:
        benchmark.own_files(folder)
    return str(ended.value)


def test_missing_files_are_refused(benchmark: ModuleType, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert refused(benchmark, nowhere).startswith(f"{nowhere}: no files: name the folder")
    write(tmp_path / "train-0", 5)
    words = f"{tmp_path}: 1 files for {RANKS} ranks, each of which needs one: write more files"
    assert refused(benchmark, tmp_path).startswith(words)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"cut"])
def test_file_that_is_no_complete_one_is_refused(
    benchmark: ModuleType, tmp_path: Path, content: bytes
) -> None:
    write(tmp_path / "train-0", 5)
    other = write(tmp_path / "train-1", 5, 7)
    other.write_bytes(other.read_bytes()[:-1] if content == b"cut" else content)
    said = refused(benchmark, tmp_path)
    assert said.startswith(f"{other}: its {other.stat().st_size} bytes do not end with a record")
    assert said.endswith("copy or write it again")
