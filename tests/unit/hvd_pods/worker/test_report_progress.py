"""The progress that a script reports: its file, and what the worker tells the master of it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from hvd_pods.library import hvd_progress
from hvd_pods.pod import metrics
from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS
from hvd_pods.worker import main, report_progress


def parsed(text: str) -> metrics.ReportedProgress:
    return metrics.parse_progress(metrics.select_progress(text))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for metrics, of a process that has reported nothing yet."""
    importlib.reload(hvd_progress)
    monkeypatch.setenv("HVD_METRICS_DIR", str(tmp_path))
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    return tmp_path


def test_a_report_is_what_the_worker_reads_and_serves(folder: Path) -> None:
    hvd_progress.report(120, steps=500, loss=0.41, samples_per_second=16.0)
    assert [file.name for file in folder.iterdir()] == ["3"]
    assert parsed((folder / "3").read_text()) == {
        "step": 120,
        "steps": 500,
        "loss": 0.41,
        "samplesPerSecond": 16.0,
        "size": 8,
    }
    lines = main.make_page("1", folder).splitlines()
    assert 'hvdchart_step{rank="3"} 120.0' in lines
    assert 'hvdchart_script_lines_refused{rank="3"} 0' in lines


def test_reports_are_made_once_a_second_and_at_the_last_step(folder: Path) -> None:
    hvd_progress.report(1, steps=3, every=60.0)
    hvd_progress.report(2, steps=3, every=60.0)
    assert parsed((folder / "3").read_text())["step"] == 1
    hvd_progress.report(3, steps=3, every=60.0)
    assert parsed((folder / "3").read_text())["step"] == 3


def test_a_report_never_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HVD_METRICS_DIR", str(folder / "none"))
    hvd_progress.report(1)
    assert capsys.readouterr().err
    monkeypatch.delenv("HVD_METRICS_DIR")
    hvd_progress.report(2, steps=2)


def test_horovod_knows_the_rank_better_than_the_launcher(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = SimpleNamespace(is_initialized=lambda: True, rank=lambda: 5, size=lambda: 6)
    monkeypatch.setitem(sys.modules, "horovod.torch", fake)
    assert hvd_progress.find_rank() == (5, 6)
    fake.is_initialized = lambda: False
    assert hvd_progress.find_rank() == (3, 8)


@pytest.mark.parametrize("names", LAUNCHER_OPTIONS["rankVariables"].values())
def test_each_launcher_reports_the_rank(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {names[0]: "2", names[1]: "4"})
    assert hvd_progress.find_rank() == (2, 4)


def test_the_callback_counts_steps_over_epochs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Callback:
        params = {"steps": 5, "epochs": 4}  # noqa: RUF012

    keras = ModuleType("keras")
    keras.callbacks = SimpleNamespace(Callback=Callback)  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "keras", keras)
    callback = hvd_progress.keras_callback(batch_size=32, every=0.0)
    callback.on_train_begin()
    # As a run that resumes.
    callback.on_epoch_begin(2)
    callback.on_train_batch_end(0, {"loss": 0.5})
    metrics = parsed((folder / "3").read_text())
    assert (metrics["step"], metrics["steps"], metrics["loss"]) == (11, 20, 0.5)
    assert metrics["samplesPerSecond"] > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("hvdchart_step", {}),
        ("hvdchart_step -1", {}),
        (f"hvdchart_step {'9' * 100_000}", {}),
        ("hvdchart_step 3\nhvdchart_lo", {"step": 3}),
        ("\0\0\xff\nhvdchart_step 3\nEpoch 1/5\n", {"step": 3}),
        ("hvdchart_step 3\nhvdchart_loss NaN", {"step": 3, "loss": "nan"}),
        ("hvdchart_step 3\nhvdchart_samples_per_second Inf", {"step": 3}),
        ('hvdchart_step{rank="1"} 3', {}),
        ("hvdchart_step 9007199254740992", {"step": 2**53}),
        ("hvdchart_step 9007199254740994", {}),
        (f"hvdchart_step 3\nhvdchart_loss 0.{'0' * 38}", {"step": 3}),
    ],
)
def test_what_is_not_understood_is_left_out(text: str, expected: metrics.ReportedProgress) -> None:
    assert parsed(text) == expected


def test_the_first_rank_that_has_written_since_is_read(tmp_path: Path) -> None:
    (tmp_path / "10").write_text("hvdchart_step 3\n")
    (tmp_path / "2").write_text("hvdchart_step 2\n")
    (tmp_path / ".0").write_text("hvdchart_step 9\n")
    (tmp_path / "notes").write_text("hvdchart_step 9\n")
    assert report_progress.read_folder(tmp_path, 0.0) == "hvdchart_step 2"
    # A link, and a FIFO, whose opening would wait for a writer.
    (tmp_path / "1").symlink_to("10")
    os.mkfifo(tmp_path / "0")
    os.utime(tmp_path / "2", (1000, 1000))
    assert report_progress.read_folder(tmp_path, 1000.0) == "hvdchart_step 2"
    assert report_progress.read_folder(tmp_path, 2000.0) == "hvdchart_step 3"
    assert report_progress.read_folder(tmp_path / "none", 0.0) == ""


@pytest.mark.slow
def test_the_worker_reports_each_change_once_and_the_last_step(tmp_path: Path) -> None:
    """It ends with its standard input, which the master closes."""
    rank = tmp_path / "0"
    before = tmp_path / "1"
    # Of the attempt before, whose last loss may be NaN.
    before.write_text("hvdchart_step 3\nhvdchart_loss nan\n")
    os.utime(before, (time.time() - 61,) * 2)
    command = [sys.executable, "-I", report_progress.__file__, "60"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env={"HVD_METRICS_DIR": str(tmp_path)}, stdin=pipe, stdout=pipe, text=True
    ) as worker:
        assert worker.stdout
        rank.write_text("hvdchart_step 1\n")
        assert worker.stdout.readline() == "hvdchart_step 1\n"
        rank.write_text("hvdchart_step 2\n")
        assert worker.communicate(timeout=60)[0] == "hvdchart_step 2\n"
        assert worker.returncode == 0
