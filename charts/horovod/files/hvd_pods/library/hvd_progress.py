"""Reports the progress of a training.

    from hvd_progress import keras_callback, report

    model.fit(..., callbacks=[keras_callback(batch_size=32)])     # with Keras
    report(step, steps=500, loss=0.41, samples_per_second=16.2)    # in a loop of your own

`hvdchart status` then shows the step, the loss, the speed and the time that is left, and Prometheus
gets the same numbers. Outside of a run of the chart nothing is written. A file that cannot be
written is no reason to end a training, so that no error is raised.

Of a script that reports nothing, the ranks count the steps that can be seen (rank/step_count.py).
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

# Seconds between two reports of the same process: a step may take a millisecond.
REPORT_INTERVAL_SECONDS = 1.0
HOROVOD = ("tensorflow", "torch", "tensorflow.keras", "keras")
# The variables in which launchers give the rank and the number of ranks. They are those of
# shared/launcher_options.json, which is not beside a copy of this module in an image.
VARIABLES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)
# When this process reported last.
_reported = {"at": float("-inf")}


def report(
    step: int,
    steps: int | None = None,
    loss: float | None = None,
    samples_per_second: float | None = None,
    every: float = REPORT_INTERVAL_SECONDS,
) -> None:
    """Report that this rank has completed `step` of `steps` steps; the speed is of this rank alone.

    `step` counts from the beginning of the training, not from that of an epoch. What is None is not
    reported. Numbers of NumPy and of the frameworks are taken, too. Each rank may call this after
    each step. What is reported within `every` seconds of the last time is left out, but for the
    last step.
    """
    folder = os.environ.get("HVD_METRICS_DIR")
    now = time.monotonic()
    if not folder or (now - _reported["at"] < every and step != steps):
        return
    _reported["at"] = now
    rank, size = find_rank()
    reported = {
        "step": step,
        "steps": steps,
        "loss": loss,
        "samples_per_second": samples_per_second,
        "size": size,
    }
    lines = [
        # NumPy's and the frameworks' scalars are numbers.
        f"hvdchart_{name} {float(value)!r}\n"
        for name, value in reported.items()
        if value is not None
    ]
    try:
        # Renamed when it is complete, so that nobody reads half of it.
        new = Path(folder, f".{rank}")
        new.write_text("".join(lines))
        new.replace(Path(folder, str(rank)))
    except OSError as problem:
        print(f"cannot report the progress: {problem}", file=sys.stderr)


def find_rank() -> tuple[int, int]:
    """Return this rank's number and the number of ranks: from Horovod, else from the launcher.

    Return rank 0 of 1 if neither knows it.
    """
    for name in HOROVOD:
        module = sys.modules.get(f"horovod.{name}")
        if module is not None and module.is_initialized():
            return module.rank(), module.size()
    for rank, size in VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def keras_callback(batch_size: int = 0, every: float = REPORT_INTERVAL_SECONDS) -> Any:
    """Return a Keras callback that reports each step, and with a rank's `batch_size` its speed.

    `batch_size` is the number of samples in a batch of one rank; 0 reports no speed. `every` is
    that of `report`. Raises ImportError where there is neither TensorFlow nor Keras.
    """
    if "tensorflow" in sys.modules:
        # Keras 2 or 3, whichever this TensorFlow is set to use.
        base = sys.modules["tensorflow"].keras.callbacks.Callback
    else:
        base = importlib.import_module("keras").callbacks.Callback

    class Reporter(base):  # type: ignore[misc, valid-type]
        def on_train_begin(self, logs: Any = None) -> None:
            self.step = 0
            self.reported = 0
            self.at = time.monotonic()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            # A run that resumes starts with a later epoch.
            self.step = max(self.step, epoch * (self.params.get("steps") or 0))
            self.reported = max(self.reported, self.step)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.step += 1
            steps = (self.params.get("steps") or 0) * (self.params.get("epochs") or 0)
            passed = time.monotonic() - self.at
            if passed < every and self.step != steps:
                return
            speed = batch_size * (self.step - self.reported) / passed if batch_size else None
            report(self.step, steps or None, (logs or {}).get("loss"), speed, every)
            self.reported = self.step
            self.at = time.monotonic()

    return Reporter()
