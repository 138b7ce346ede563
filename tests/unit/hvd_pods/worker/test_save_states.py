"""What workers save of a training's memory when that ends as planned (worker/save_states.py)."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep import packed_state
from hvd_pods.library.keep.packed_content import HEADER_SIZE
from hvd_pods.worker import kept_states, save_states

FENCE = 1_790_000_000_000


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of checkpoints, which all workers share."""
    monkeypatch.setenv("OUTPUT_PATH", str(tmp_path / "output"))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return tmp_path / "output"


@pytest.fixture
def train(volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Train to a step in a worker and a run; returns the worker's memory."""
    # The states of earlier tests may be parts of cycles, and a script has one of each name.
    gc.collect()

    def train(step: int, worker: str = "w-0", run: str = "one", fence: int = FENCE) -> Path:
        monkeypatch.setenv("HVD_KEEP", str(tmp_path / worker))
        monkeypatch.setenv("HVD_RUN_ID", run)
        monkeypatch.setenv("HVD_FENCE", str(fence))
        state: Any = keep.State(weights=b"")
        for number in (step - 1, step):
            state.weights = b"after step %02d" % number
            state.commit(number)
        return tmp_path / worker

    return train


def saved(volume: Path) -> tuple[int, bytes]:
    """The step and the weights of the checkpoint, which is complete."""
    packed = keep.read_file(volume / "keep-main.state")
    return packed.key.step, packed.value["parts"]["weights"]


def half(_: bytes) -> bytes:
    return b"half of a"


def changed(content: bytes) -> bytes:
    return content.replace(b"after", b"AFTER")


def test_a_checkpoint_is_written_from_memory_without_the_script(
    volume: Path, train: Callable[..., Path]
) -> None:
    memory = train(812)
    assert save_states.save_all(memory)
    assert saved(volume) == (812, b"after step 812")
    assert {path.name for path in volume.iterdir()} == {
        "keep-main.state",
        ".keep-main.state.lock",
    }


def test_another_script_continues_from_it(
    train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_states.save_all(train(812))
    monkeypatch.setenv("HVD_RUN_ID", "two")
    monkeypatch.setenv("HVD_KEEP", str(tmp_path / "new"))
    assert keep.State(weights=b"").restore() == 812


def test_a_record_that_a_killed_rank_has_not_finished_costs_one_step(
    volume: Path, train: Callable[..., Path]
) -> None:
    memory = train(12)
    (newest,) = (path for path in memory.glob("*/*") if b"step 12" in path.read_bytes())
    newest.write_bytes(bytes(HEADER_SIZE) + newest.read_bytes()[HEADER_SIZE:])
    assert save_states.save_all(memory)
    assert saved(volume)[0] == 11


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param({"step": 12}, {"step": 11}, 12, id="an older step"),
        pytest.param({"step": 12}, {"step": 13}, 13, id="a newer step"),
        pytest.param(
            {"step": 12}, {"step": 3, "run": "two", "fence": FENCE + 1}, 3, id="a later run"
        ),
        pytest.param(
            {"step": 12}, {"step": 30, "run": "two", "fence": FENCE - 1}, 12, id="an earlier run"
        ),
    ],
)
def test_the_newest_state_stays_whichever_worker_comes_last(
    volume: Path,
    train: Callable[..., Path],
    first: dict[str, Any],
    second: dict[str, Any],
    expected: int,
) -> None:
    assert save_states.save_all(train(**first, worker="w-0"))
    assert save_states.save_all(train(**second, worker="w-1"))
    assert saved(volume)[0] == expected


def test_workers_that_end_at_once_leave_the_newest_state(
    volume: Path, train: Callable[..., Path]
) -> None:
    memories = [train(step, worker=f"w-{step}") for step in (14, 17, 12, 16)]
    with ThreadPoolExecutor(len(memories)) as pool:
        assert all(pool.map(save_states.save_all, memories))
    assert saved(volume)[0] == 17
    assert not [*volume.glob("*.worker"), *volume.glob(".*.worker")]


def test_workers_share_no_file_where_the_volume_has_no_locks(
    volume: Path, train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was cut off would rename what another one has not written to the end."""
    names: list[str] = []
    sync = os.fsync

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    def note(descriptor: int) -> None:
        names.extend(path.name for path in volume.glob(".*.worker"))
        sync(descriptor)

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(os, "fsync", note)
    assert save_states.save_all(train(12, worker="w-12"))
    assert save_states.save_all(train(13, worker="w-13"))
    assert len({*names}) == 2
    assert saved(volume)[0] == 13


@pytest.mark.parametrize("damage", [half, changed])
def test_damaged_checkpoint_is_replaced(
    volume: Path, train: Callable[..., Path], damage: Callable[[bytes], bytes]
) -> None:
    memory = train(12)
    save_states.save_all(memory)
    checkpoint = volume / "keep-main.state"
    checkpoint.write_bytes(damage(checkpoint.read_bytes()))
    assert save_states.save_all(memory)
    assert saved(volume) == (12, b"after step 12")


@pytest.mark.parametrize(("most", "is_done", "expected"), [(1, True, 14), (99, False, 10)])
def test_a_state_that_a_rank_replaces_while_it_is_copied_is_read_anew(
    volume: Path,
    train: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    is_done: bool,
    expected: int,
) -> None:
    """A rank that does not end makes two steps in each copy, or in the first one only."""
    save_states.save_all(train(10))
    memory = train(12)
    steps = [*range(14, 14 + 2 * most, 2)]

    def crc32(data: Any, *more: int) -> int:
        found = zlib_crc32(data, *more)
        if len(data) > HEADER_SIZE and steps:
            # The first bytes of a state have been read, and the rest are about to be.
            train(steps.pop(0))
        return found

    zlib_crc32 = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", crc32)
    assert save_states.save_all(memory) is is_done
    monkeypatch.undo()
    assert saved(volume) == (expected, b"after step %02d" % expected)


def test_what_no_volume_gets_is_named(
    volume: Path,
    train: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("OUTPUT_PATH")
    save_states.save_all(train(812))
    assert "812" in capsys.readouterr().out
    assert not volume.exists()


def test_volume_that_cannot_be_written_fails_and_leaves_the_checkpoint(
    volume: Path, train: Callable[..., Path], tmp_path: Path
) -> None:
    save_states.save_all(train(12))
    memory = train(13)
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); {RUN}"
    environment = {**os.environ, "HVD_KEEP": str(memory)}
    done = subprocess.run(
        [sys.executable, "-c", limited], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 1, done
    assert b"step 13" in done.stdout
    assert saved(volume)[0] == 12
    assert not [*volume.glob(".*.worker")]


RUN = (
    "import sys; from hvd_pods.worker import kept_states, save_states; sys.exit(save_states.main())"
)


@pytest.mark.parametrize(
    "where", ["keep-main.state", "/etc/passwd", "/tmp/../etc/keep-other.state"]
)
def test_a_record_leads_to_no_other_file(
    train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(packed_state, "notes_of", lambda packed: {"checkpoint": where})
    assert not save_states.save_all(train(12))


def test_workers_look_where_the_library_keeps_states() -> None:
    assert kept_states.DEFAULT_KEPT_FOLDER == keep.FOLDER
