"""Counts the steps of a script that reports none, so that `hvdchart status` shows a step.

A step is one of PyTorch's first optimizer, or a batch of Keras 3, whose loss is shown, too. The
steps are those of this attempt, unless the script commits each of them with `keep`, which stores
the step from which it resumed. A script that reports its progress (library/hvd_progress.py) is not
counted.

This runs in the script's own process, and must not change the script's behavior: counting stops at
the first problem.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

# Seconds between two writes.
WRITE_INTERVAL_SECONDS = 1.0
# The samples to write (pod/metrics.py).
COUNTED = b"hvdchart_counted_step"
STEP = "hvdchart_step"


def begin(rank: int) -> None:
    """Count from the import of the framework on; do nothing outside of a run."""
    # The name is not imported from shared/contract.py: a script sees no other module of the chart.
    folder = os.environ.get("HVD_METRICS_DIR")
    if not folder:
        return
    counter = Counter(os.path.join(folder, str(rank)))
    missing = {}
    for name, follow in FOLLOW.items():
        if name in sys.modules:
            _try(follow, sys.modules[name], counter)
        else:
            missing[name] = follow
    sys.meta_path.insert(0, Finder(missing, counter))


class Counter:
    """Writes the number of steps to a file of this rank, about once a second."""

    def __init__(self, path: str) -> None:
        self._path = path
        # The file of an earlier attempt, if there is one.
        self._left = _version(path)
        self._written = 0.0
        # A fork of the script may train, too, for instance for a validation.
        self._process = os.getpid()
        self._is_over = False
        # Keras may call it in several threads.
        self._lock = _thread.allocate_lock()
        self.step = 0
        # The difference between the steps of `keep` and these steps at the last write.
        self._offset: int | None = None
        # The count since the last write.
        self._unwritten: tuple[int, int | None, Any] | None = None

    def take(self, step: int, steps: int | None = None, loss: Any = None) -> None:
        """Record that the script has made `step` of `steps` steps in this attempt."""
        if self._is_over or not self._lock.acquire(False):
            return
        try:
            now = time.monotonic()
            if step <= self.step:
                return
            if not self.step:
                # A script that trains has imported it. Other scripts must not see a module that
                # they did not import.
                import atexit

                atexit.register(self._end)
            self.step = step
            self._unwritten = (step, steps, loss)
            if now - self._written >= WRITE_INTERVAL_SECONDS or step == steps:
                self._written = now
                self._write_last()
        except Exception as problem:  # noqa: BLE001 - the script works without
            self.give_up(problem)
        finally:
            self._lock.release()

    def give_up(self, problem: Exception) -> None:
        """Stop counting. The script continues, whatever the problem is."""
        if self._is_over:
            return
        self._is_over = True
        try:
            if sys.stderr is not None:
                cause = f"{type(problem).__name__}: {problem}"
                print(f"[hvd] the steps of this script are not counted: {cause}", file=sys.stderr)
        except Exception:  # noqa: BLE001, S110 - its standard error may be closed
            pass

    def _end(self) -> None:
        """Write the last step when the script ends."""
        try:
            if not self._is_over:
                self._write_last()
        except Exception as problem:  # noqa: BLE001 - the script has its own exit code
            self.give_up(problem)

    def _write_last(self) -> None:
        last = self._unwritten
        self._unwritten = None
        if last and os.getpid() == self._process and not self._is_of_script():
            self._write(*last)

    def _is_of_script(self) -> bool:
        """Return whether the script has written this file, also by hvd_progress."""
        try:
            is_left = _version(self._path) == self._left
            with open(self._path, "rb") as file:
                is_counted = file.read(len(COUNTED)) == COUNTED
        except OSError:
            return False
        self._is_over = not is_left and not is_counted
        return self._is_over

    def _write(self, step: int, steps: int | None, loss: Any) -> None:
        lines = [f"{COUNTED.decode()} {step}\n"]
        resumed = self._find_resumed(step)
        if resumed is not None:
            lines.append(f"{STEP} {step + resumed}\n")
        if steps:
            lines.append(f"hvdchart_steps {steps + (resumed or 0)}\n")
        loss_value = _as_number(loss)
        if loss_value is not None:
            lines.append(f"hvdchart_loss {loss_value!r}\n")
        # Rename the file when it is complete, so that no reader sees a part of it.
        new = f"{os.path.dirname(self._path)}/.{os.path.basename(self._path)}.counted"
        with open(new, "w", encoding="ascii") as file:
            file.write("".join(lines))
        os.replace(new, self._path)

    def _find_resumed(self, step: int) -> int | None:
        """Return the number of steps before this attempt; None if it is unknown.

        `keep` numbers commits. If the script commits each step, both numbers grow alike, and their
        difference is the same at two writes. If the script commits each epoch, it is not.
        """
        last_step = getattr(sys.modules.get("keep"), "last_step", None)
        resumed = None if last_step is None else last_step()
        before = self._offset
        offset = self._offset = None if resumed is None else int(resumed) - step
        return max(offset, 0) if offset is not None and offset == before else None


def _version(path: str) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced or written; None without the file.

    The clock of `time` is no measure: the kernel's times of files are some milliseconds behind it.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _as_number(loss: Any) -> float | None:
    """Return the loss as a number; None for other values, such as a loss for each sample."""
    try:
        return None if loss is None else float(loss)
    except (TypeError, ValueError):
        return None


class Finder:
    """Finds modules through the other finders of sys.meta_path, and follows some of them."""

    def __init__(
        self, follow: Mapping[str, Callable[[Any, Counter], None]], counter: Counter
    ) -> None:
        self._follow = follow
        self._counter = counter

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        follow = self._follow.get(name)
        if follow is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, follow, self._counter)
                return spec
        return None


class Loader:
    """Wraps a module's own loader; the module gets that back after the import."""

    def __init__(
        self, loader: Any, follow: Callable[[Any, Counter], None], counter: Counter
    ) -> None:
        self._loader = loader
        self._follow = follow
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _try(self._follow, module, self._counter)


def _try(follow: Callable[[Any, Counter], None], module: Any, counter: Counter) -> None:
    """Follow a module. Give up if its version does not support that."""
    try:
        follow(module, counter)
    except Exception as problem:  # noqa: BLE001 - the script works without
        counter.give_up(problem)


def _follow_torch(module: Any, counter: Counter) -> None:
    """Count the steps of one optimizer. Other optimizers, such as those of a GAN, step beside it.

    When the optimizer is gone, count the next one: a script may train several models in turn.
    """
    if not hasattr(module, "register_optimizer_step_post_hook"):
        # Older than PyTorch 2.0.
        return
    import weakref

    chosen: list[Any] = [lambda: None]
    # A subclass, such as Horovod's, calls the step of its base class within its own step: only the
    # first end after a beginning counts. A step that fails has no end.
    state = {"steps": 0, "has_begun": False}

    def enter(optimizer: Any, *_: Any) -> None:
        if chosen[0]() is None:
            chosen[0] = weakref.ref(optimizer)
        if chosen[0]() is optimizer:
            state["has_begun"] = True

    def leave(optimizer: Any, *_: Any) -> None:
        if chosen[0]() is optimizer and state["has_begun"]:
            state["has_begun"] = False
            state["steps"] += 1
            counter.take(state["steps"])

    module.register_optimizer_step_pre_hook(enter)
    module.register_optimizer_step_post_hook(leave)


def _follow_keras(module: Any, counter: Counter) -> None:
    """Add a callback to each list of callbacks, which sees the batches of a training."""
    make = module.CallbackList.__init__

    class Batches(module.Callback):  # type: ignore[misc]
        # The steps before this training, its first epoch, and the batches of the epochs since then.
        base = 0
        first: int | None = None
        before = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            try:
                if self.first is None:
                    self.base = counter.step
                    self.first = epoch
                self.before = self.base + (epoch - self.first) * self._number("steps")
            except Exception as problem:  # noqa: BLE001 - the script works without
                counter.give_up(problem)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            try:
                loss = logs.get("loss") if isinstance(logs, dict) else None
                steps = (self._number("epochs") - (self.first or 0)) * self._number("steps")
                counter.take(self.before + batch + 1, steps and self.base + steps, loss)
            except Exception as problem:  # noqa: BLE001 - the script works without
                counter.give_up(problem)

        def _number(self, name: str) -> int:
            # A script's own loop provides none.
            return int((self.params or {}).get(name) or 0)

    def add(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        # Add it last: Keras has then already decided whether the others may run beside the next
        # batch.
        batches = Batches()
        batches.set_params(getattr(self, "params", None))
        self.callbacks.append(batches)

    module.CallbackList.__init__ = add


FOLLOW = {
    "torch.optim.optimizer": _follow_torch,
    "keras.src.callbacks.callback_list": _follow_keras,
}
