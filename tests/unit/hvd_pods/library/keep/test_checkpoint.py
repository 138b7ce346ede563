"""The checkpoints of keep: when they are written, and which are read."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep import arrays, parts
from hvd_pods.library.keep import checkpoint as checkpoints
from tests.unit.hvd_pods.library.keep.scripts import resume, train


@pytest.fixture
def checkpoint(worker: Path) -> Path:
    """The checkpoint of a script."""
    return worker.with_name("keep-main.state")


def stand_in_for_numpy(monkeypatch: pytest.MonkeyPatch, problem: type[Exception]) -> None:
    """Let NumPy, which the environment of the tests lacks, raise this for each type."""

    def frombuffer(data: memoryview, kind: str) -> None:
        raise problem(kind)

    numpy = ModuleType("numpy")
    monkeypatch.setattr(numpy, "frombuffer", frombuffer, raising=False)
    monkeypatch.setitem(sys.modules, "numpy", numpy)


def refuse_type(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Begin a training beside another run's checkpoint with an array of this type."""
    train(1).save()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    value = {"parts": {"weights": b"w" * 8, "losses": []}, "steps of epoch": 0, "run": "one"}
    to_bytes = arrays.to_bytes
    monkeypatch.setattr(arrays, "to_bytes", lambda value: (kind, *to_bytes(value)[1:]))
    checkpoint.write_bytes(keep.pack(keep.StepKey(0, 1), value))
    with pytest.raises(ValueError, match=r"keep-main\.state "):
        train()


def test_memory_that_is_newer_than_the_checkpoint_counts(worker: Path) -> None:
    train(1, 2).save()
    train(3)
    assert resume()[0] == 3


def test_the_checkpoint_counts_where_all_memory_is_gone(
    worker: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(1, 2).save()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    capsys.readouterr()
    assert resume() == (2, b"after step 02")
    assert "OUTPUT_PATH" in capsys.readouterr().err


def test_a_checkpoint_of_another_run_is_not_newer_whatever_its_step(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(1, 2).save()
    other = checkpoint.read_bytes()
    checkpoint.unlink()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    train(1)
    checkpoint.write_bytes(other)
    assert resume()[0] == 1


def test_checkpoints_are_written_beside_the_training(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At each commit.
    train(5, minutes=0.0).wait()
    assert b"step 05" in checkpoint.read_bytes()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    assert resume() == (5, b"after step 05")


def test_a_checkpoint_of_another_script_is_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep.State(weights=b"made", more=1).save()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    with pytest.raises(ValueError, match=r"keep-main\.state .*\bmore\b.* OUTPUT_PATH"):
        train()


@pytest.mark.parametrize("folder", ["file", "file/in"])
def test_unwritable_checkpoint_is_reported_before_the_training(worker: Path, folder: str) -> None:
    (worker.parent / "file").touch()
    with pytest.raises(ValueError, match=rf"{worker.parent / folder}: .*OUTPUT_PATH"):
        train(output=worker.parent / folder)


def test_the_folder_of_checkpoints_is_made(worker: Path) -> None:
    train(1, output=worker.parent / "new").save()
    assert (worker.parent / "new" / "keep-main.state").exists()


def test_a_damaged_checkpoint_ends_no_run_that_has_its_state_in_memory(
    worker: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(1, 2).save()
    checkpoint = worker.with_name("keep-main.state")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"x")
    assert resume()[0] == 2
    assert "keep-main.state is damaged: " in capfd.readouterr().err


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_writer_that_was_cut_off_spoils_no_checkpoint(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It writes, or renames, after its successor has written another one."""
    newer = keep.pack(keep.StepKey(0, 200), b"new")
    original = getattr(os, call)

    def cut_off(*arguments: Any) -> Any:
        monkeypatch.setattr(os, call, original)
        done = original(*arguments)
        checkpoints.write_atomically(checkpoint, newer)
        return done

    monkeypatch.setattr(os, call, cut_off)
    with pytest.raises(FileNotFoundError):
        checkpoints.write_atomically(checkpoint, keep.pack(keep.StepKey(0, 100), b"x" * 100_000))
    assert keep.read_file(checkpoint).key == keep.StepKey(0, 200)
    assert [path.name for path in checkpoint.parent.glob(".*")] == []


def test_each_writer_has_a_file_of_its_own(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was cut off would rename what its successor has not written to the end."""
    names: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        names.extend(path.name for path in checkpoint.parent.glob(".*"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    checkpoints.write_atomically(checkpoint, keep.pack(keep.StepKey(0, 1), b"x"))
    checkpoints.write_atomically(checkpoint, keep.pack(keep.StepKey(0, 2), b"x"))
    assert len({*names}) == 2


def test_a_checkpoint_is_not_written_through_a_link(checkpoint: Path) -> None:
    (checkpoint.parent / "precious").write_bytes(b"precious")
    checkpoint.with_name(".keep-main.state.new").symlink_to("precious")
    train(1).save()
    assert (checkpoint.parent / "precious").read_bytes() == b"precious"


def test_a_checkpoint_is_not_read_through_a_link(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes to the volume names no other file for the rank to read."""
    train(1).save()
    checkpoint.rename(checkpoint.with_name("elsewhere"))
    checkpoint.symlink_to("elsewhere")
    monkeypatch.setenv("HVD_RUN_ID", "two")
    with pytest.raises(ValueError, match=r"keep-main\.state"):
        train()


def test_a_checkpoint_sets_only_what_callbacks_learn() -> None:
    part = SimpleNamespace(on_epoch_end=None, wait=1, model="own")
    parts.write_part(part, {"wait": 7, "model": "stranger's", "on_epoch_end": "stranger's"})
    assert (part.wait, part.model, part.on_epoch_end) == (7, "own", None)


@pytest.mark.parametrize("kind", ["(", "O8", "|O8", "V8", "i4,i4", "finfo", "a" * 5000, "1" * 5000])
def test_a_checkpoint_with_an_odd_type_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """NumPy does not get it: it evaluates some texts, and makes objects or records of others."""
    stand_in_for_numpy(monkeypatch, AssertionError)
    refuse_type(checkpoint, monkeypatch, kind)


@pytest.mark.parametrize("problem", [SyntaxError, TypeError])
def test_a_checkpoint_with_a_type_that_numpy_does_not_know_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    stand_in_for_numpy(monkeypatch, problem)
    refuse_type(checkpoint, monkeypatch, "<f3")
