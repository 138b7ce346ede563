"""The callback for Keras."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .kept_state import State


def Callback(state: State | None = None, every: int = 1) -> Any:  # noqa: N802 - as a class of Keras
    """Return a Keras callback that restores the state, and commits it after `every` batches.

    A continued fit() skips completed epochs and batches: with data whose order follows from the
    epoch, all weights become those of a training without a fault. With a backend other than
    TensorFlow, whose batches cannot be skipped, it commits at the end of an epoch.

    Without a `state`, it keeps the model and its optimizer. fit() raises ValueError if it does not
    know the steps of an epoch, and if another fit() has used the state. Raises ImportError without
    both TensorFlow and Keras.
    """
    # Keras 2 or 3, whichever this TensorFlow was told to use.
    tensorflow: Any = sys.modules.get("tensorflow")
    keras = tensorflow.keras if tensorflow is not None else importlib.import_module("keras")
    base: Any = keras.callbacks.Callback
    leaves_batches_out = keras.backend.backend() == "tensorflow"

    class Keeper(base):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            self.state = state or State(model=self.model, optimizer=self.model.optimizer)
            self.steps = self.params.get("steps")
            if not self.steps:
                raise ValueError("keep: fit() has to know the steps of an epoch: steps_per_epoch")
            self.state.begin_fit()
            # Keras 3 begins with this epoch; Keras 2 with its own, whose batches are left out.
            self.model._initial_epoch = self.state.epochs(self.steps)
            self.done = self.state.step
            self.at_once = int(getattr(self.model, "steps_per_execution", None) or 1)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.state.restore_callbacks()
            self.before = epoch * self.steps
            left_out = min(self.steps, self.state.step - self.before)
            if left_out > 0:
                self.model.train_function = skipping(self.model, left_out, self.at_once)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            # The number at the end is that of the first or of the last batch of an execution.
            self.done = self.before + min(self.steps, batch + self.at_once)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            # The last one of an epoch counts when the epoch's end does, so that none is left out.
            if leaves_batches_out and self.done < self.before + self.steps:
                self.commit()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.commit()

        def commit(self) -> None:
            if self.done >= self.state.step + every:
                self.state.commit(self.done)

        def on_train_end(self, logs: Any = None) -> None:
            self.model._initial_epoch = None
            self.state.end_fit(self.done)

    return Keeper()


def skipping(model: Any, left: int, at_once: int) -> Any:
    """Return a train function that skips `left` batches, and then restores the model's function."""
    train = model.train_function

    def skip(iterator: Any) -> dict[str, Any]:
        nonlocal left
        for _ in range(at_once):
            next(iterator)
        left -= at_once
        if left <= 0:
            model.train_function = train
        return {}

    return skip
