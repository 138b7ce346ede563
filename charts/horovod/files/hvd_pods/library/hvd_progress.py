"""Tells how far the training is.

    from hvd_progress import keras_callback, report

    model.fit(..., callbacks=[keras_callback(batch_size=32)])     # with Keras
    report(step, steps=500, loss=0.41, images_per_second=16.2)    # in a loop of your own

`hvdchart status` then shows the step, the loss, the speed and the time that is left, and Prometheus
gets the same numbers. Outside of a run of the chart nothing is written. A file that cannot be
written is no reason to end a training, so that no error is raised.

Of a script that reports nothing, the ranks count what can be seen without it (`count_steps`). Each
rank starts with this module, so that it imports little.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# Seconds between two reports of the same process: a step may take a millisecond.
EVERY = 1.0
HOROVOD = ("tensorflow", "torch", "tensorflow.keras", "keras", "mxnet")
# The variables in which launchers give the rank and the number of ranks.
VARIABLES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)
# When this process reported last.
_reported = {"at": -EVERY}
# Whether the script reports its progress itself.
_script = {"reports": False}


def report(
    step: int,
    steps: int | None = None,
    loss: float | None = None,
    images_per_second: float | None = None,
) -> None:
    """Report that this rank has made `step` of `steps` steps; the speed is that of this rank alone.

    `step` counts from the beginning of the training, not from that of an epoch. What is None is not
    reported. Numbers of NumPy and of the frameworks are taken, too. Each rank may call this after
    each step. What is reported within a second of the last time is left out, but for the last step.
    """
    _script["reports"] = True
    if _is_due(is_last=step == steps):
        _write(
            {
                "step": step,
                "steps": steps,
                "loss": loss,
                "images_per_second": images_per_second,
            }
        )


def _is_due(*, is_last: bool) -> bool:
    """Whether a step is reported: the last one is, and others once in EVERY seconds."""
    now = time.monotonic()
    if now - _reported["at"] < EVERY and not is_last:
        return False
    _reported["at"] = now
    return True


def _write(reported: Mapping[str, Any]) -> None:
    """Write what is known to this rank's file, which the worker's programs read."""
    folder = os.environ.get("HVD_METRICS_DIR")
    if not folder:
        return
    rank, size = find_rank()
    lines = [
        # NumPy's and the frameworks' scalars are numbers.
        f"horovod_{name} {float(value)!r}\n"
        for name, value in {**reported, "size": size}.items()
        if value is not None
    ]
    try:
        # Renamed when it is complete, so that nobody reads half of it.
        new = os.path.join(folder, f".{rank}")
        with open(new, "w", encoding="ascii") as file:
            file.write("".join(lines))
        os.replace(new, os.path.join(folder, str(rank)))
    except OSError as problem:
        print(f"cannot report the progress: {problem}", file=sys.stderr)


def find_rank() -> tuple[int, int]:
    """Return the number of this rank, and of how many: from Horovod, else from the launcher.

    Where neither knows it, this is rank 0 of 1.
    """
    for name in HOROVOD:
        module = sys.modules.get(f"horovod.{name}")
        if module is not None and module.is_initialized():
            return module.rank(), module.size()
    for rank, size in VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def keras_callback(batch_size: int = 0) -> Any:
    """Return a Keras callback that reports each step, and with a rank's `batch_size` its speed.

    `batch_size` is the number of samples in a batch of one rank; 0 reports no speed. Raises
    ImportError where there is neither TensorFlow nor Keras.
    """
    if "tensorflow" in sys.modules:
        # Keras 2 or 3, whichever this TensorFlow is set to use.
        base = sys.modules["tensorflow"].keras.callbacks.Callback
    else:
        import importlib

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
            if passed < EVERY and self.step != steps:
                return
            speed = batch_size * (self.step - self.reported) / passed if batch_size else None
            report(self.step, steps or None, (logs or {}).get("loss"), speed)
            self.reported = self.step
            self.at = time.monotonic()

    return Reporter()


def count_steps() -> None:
    """Count the steps of a script that reports none, from the import of its framework on.

    A step is one of PyTorch's first optimizer, or a batch of `fit` of Keras 3, which also shows its
    loss. Only this attempt's steps are counted: a script may resume where nobody else knows. Called
    before the script, in a run of the chart; outside of one it does nothing.
    """
    if not os.environ.get("HVD_METRICS_DIR"):
        return
    missing = {}
    for name, follow in FOLLOW.items():
        if name in sys.modules:
            follow(sys.modules[name])
        else:
            missing[name] = follow
    sys.meta_path.insert(0, _Finder(missing))


class _Finder:
    """Finds modules as the others on sys.meta_path do, and calls a function after their import."""

    def __init__(self, follow: Mapping[str, Callable[[Any], None]]) -> None:
        self._follow = follow

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        follow = self._follow.get(name)
        if follow is None:
            return None
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(name, path, target)
            if found is not None:
                if hasattr(found.loader, "exec_module"):
                    found.loader = _Loader(found.loader, follow)  # type: ignore[assignment]
                return found
        return None


class _Loader:
    """A module's own loader, which the module has again as soon as it is imported."""

    def __init__(self, loader: Any, follow: Callable[[Any], None]) -> None:
        self._loader = loader
        self._follow = follow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._follow(module)


def _count(step: int, steps: int | None, loss: Any = None) -> None:
    if not _script["reports"] and _is_due(is_last=step == steps):
        _write({"counted_step": step, "steps": steps, "loss": loss})


def _follow_torch(module: Any) -> None:
    """Count the steps of the first optimizer; others, as of a GAN, make steps beside it."""
    if not hasattr(module, "register_optimizer_step_post_hook"):
        # Older than PyTorch 2.0.
        return
    # The first optimizer, its steps, and the depth of its `step`, which a subclass may call again.
    state = {"optimizer": 0, "steps": 0, "depth": 0}

    def begin(optimizer: Any, *_: Any) -> None:
        state["optimizer"] = state["optimizer"] or id(optimizer)
        state["depth"] += state["optimizer"] == id(optimizer)

    def end(optimizer: Any, *_: Any) -> None:
        if state["optimizer"] == id(optimizer):
            state["depth"] -= 1
            if state["depth"] == 0:
                state["steps"] += 1
                _count(state["steps"], None)

    module.register_optimizer_step_pre_hook(begin)
    module.register_optimizer_step_post_hook(end)


def _follow_keras(module: Any) -> None:
    """Give each list of callbacks one that counts batches; only `fit` calls it."""
    base = module.Callback
    make = module.CallbackList.__init__

    class Counter(base):  # type: ignore[misc, valid-type]
        # Keras may call it in a thread beside the next step.
        async_safe = True

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.before = epoch * (self.params.get("steps") or 0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            steps = (self.params.get("steps") or 0) * (self.params.get("epochs") or 0)
            _count(self.before + batch + 1, steps or None, (logs or {}).get("loss"))

    def add_counter(self: Any, callbacks: Any = None, *arguments: Any, **named: Any) -> None:
        given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
        given = [callback for callback in given if callback is not None]
        make(self, [*given, Counter()], *arguments, **named)

    module.CallbackList.__init__ = add_counter


FOLLOW = {
    "torch.optim.optimizer": _follow_torch,
    "keras.src.callbacks.callback_list": _follow_keras,
}
