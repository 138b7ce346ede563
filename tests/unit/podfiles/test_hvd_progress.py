"""What a script copies to report its progress: the worker reads and serves it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from examples import hvd_progress
from hvd_pods.common import metrics
from tests.unit.podfiles.test_progress import told


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for metrics, and a report that was made long ago."""
    monkeypatch.setenv("HVD_METRICS_DIR", str(tmp_path))
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    monkeypatch.setitem(hvd_progress._reported, "at", -1000.0)
    return tmp_path


def test_a_report_is_what_the_worker_reads_and_serves(folder: Path) -> None:
    hvd_progress.report(120, steps=500, loss=0.41, images_per_second=16.0)
    assert [file.name for file in folder.iterdir()] == ["3"]
    assert told((folder / "3").read_text()) == {
        "step": 120, "steps": 500, "loss": 0.41, "imagesPerSecond": 16.0, "size": 8,
    }  # fmt: skip
    lines = metrics.worker_page("1", folder).splitlines()
    assert 'horovod_step{rank="3"} 120' in lines
    assert 'horovod_script_lines_refused{rank="3"} 0' in lines


def test_reports_are_made_once_a_second_and_at_the_last_step(folder: Path) -> None:
    for step in (1, 2):
        hvd_progress.report(step, steps=3)
    assert told((folder / "3").read_text())["step"] == 1
    hvd_progress.report(3, steps=3)
    assert told((folder / "3").read_text())["step"] == 3


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf"), 1e-30, 10**30])
def test_any_loss_is_a_number_of_prometheus(folder: Path, loss: float) -> None:
    hvd_progress.report(1, loss=loss)
    assert str(told((folder / "3").read_text())["loss"]) == str(float(loss))


def test_a_report_never_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HVD_METRICS_DIR", str(folder / "none"))
    hvd_progress.report(1)
    assert capsys.readouterr().err.startswith("cannot tell the progress: ")
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


def test_the_callback_counts_steps_over_epochs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Callback:
        params = {"steps": 5, "epochs": 4}  # noqa: RUF012

    keras = ModuleType("keras")
    keras.callbacks = SimpleNamespace(Callback=Callback)  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setattr(hvd_progress, "EVERY", 0.0)
    callback = hvd_progress.keras_callback(batch_size=32)
    callback.on_train_begin()
    # As a run that resumes.
    callback.on_epoch_begin(2)
    callback.on_train_batch_end(0, {"loss": 0.5})
    metrics = told((folder / "3").read_text())
    assert (metrics["step"], metrics["steps"], metrics["loss"]) == (11, 20, 0.5)
    assert metrics["imagesPerSecond"] > 0


@pytest.mark.slow
def test_it_runs_without_any_package() -> None:
    program = "import hvd_progress; hvd_progress.report(1)"
    folder = Path(hvd_progress.__file__).parent
    done = subprocess.run(
        ["python3", "-S", "-c", program], cwd=folder, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
