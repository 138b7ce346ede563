"""Steps of scripts that report none, counted in their own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devtools.pods.program_copies import FILES, POD_PROGRAMS
from hvd_pods.pod import metrics

# Modules with what is used of PyTorch's and of Keras', by the paths of theirs.
FRAMEWORKS = {
    "torch/optim/optimizer.py": """
before, after = [], []
register_optimizer_step_pre_hook = before.append
register_optimizer_step_post_hook = after.append

class Optimizer:
    fails = False

    def step(self):
        for hook in before:
            hook(self, (), {})
        if self.fails:
            raise MemoryError
        for hook in after:
            hook(self, (), {})

class Distributed(Optimizer):
    def step(self):
        before[0](self, (), {})
        super().step()
        after[0](self, (), {})
""",
    "keras/src/callbacks/callback_list.py": """
class Callback:
    params = None

    def set_params(self, params):
        self.params = params

class CallbackList:
    def __init__(self, callbacks=None, add_history=False, **params):
        self.given = callbacks
        self.callbacks = list(callbacks) if callbacks else []
        # As Keras: nothing is passed on where there is nothing.
        self.params = params
        if params:
            for callback in self.callbacks:
                callback.set_params(params)

    def on_epoch_begin(self, epoch):
        for callback in self.callbacks:
            callback.on_epoch_begin(epoch)

    def on_train_batch_end(self, batch, logs):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)

    def fit(self, epochs, loss=0.5):
        for epoch in epochs:
            self.on_epoch_begin(epoch)
            for batch in range(5):
                self.on_train_batch_end(batch, {"loss": loss})
""",
}
BEGIN = """\
from hvd_pods.rank import step_count
step_count.WRITE_INTERVAL_SECONDS = 0.0
step_count.begin(3)
"""
TORCH = """
from torch.optim.optimizer import Distributed, Optimizer
first, second = Distributed(), Optimizer()
for _ in range(3):
    first.step()
    second.step()
"""
KERAS = """
from keras.src.callbacks.callback_list import Callback, CallbackList
"""


def run(folder: Path, script: str, preload: str = "") -> tuple[metrics.ReportedProgress, str]:
    """What a script with these frameworks makes known, and what it prints to standard error.

    `preload` is what the process does before it becomes the rank, as a warm one.
    """
    for name, content in FRAMEWORKS.items():
        file = folder / "packages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    written = folder / "metrics"
    written.mkdir()
    paths = [FILES, POD_PROGRAMS / "library", folder / "packages"]
    environment = {
        "PYTHONPATH": ":".join(map(str, paths)),
        "HVD_METRICS_DIR": str(written),
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
    }
    command = [sys.executable, "-c", preload + BEGIN + script]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    texts = [file.read_text() for file in written.glob("[0-9]*")]
    return metrics.parse_progress(metrics.select_progress("".join(texts))), done.stderr


def test_steps_of_the_first_optimizer_are_counted_once_each(tmp_path: Path) -> None:
    """A subclass, as Horovod's, calls the step of its base within its own."""
    assert run(tmp_path, TORCH) == ({"step": 3, "isCounted": True}, "")


def test_the_last_step_is_known_however_soon_the_script_ends(tmp_path: Path) -> None:
    """Others are written once a second."""
    slowly = "from hvd_pods.rank import step_count\nstep_count.WRITE_INTERVAL_SECONDS = 3600.0\n"
    assert run(tmp_path, slowly + TORCH)[0]["step"] == 3


def test_a_step_that_fails_is_no_step(tmp_path: Path) -> None:
    """A script may go on after it, with a smaller batch."""
    fails = "Optimizer.fails = True\ntry: first.step()\nexcept MemoryError: pass\n"
    script = f"{TORCH}{fails}Optimizer.fails = False\nfirst.step()\n"
    assert run(tmp_path, script)[0]["step"] == 4


def test_the_next_optimizer_is_counted_when_the_first_one_is_gone(tmp_path: Path) -> None:
    script = f"{TORCH}del first\nfor _ in range(2): second.step()\n"
    assert run(tmp_path, script)[0]["step"] == 5


def test_batches_are_counted_with_their_loss(tmp_path: Path) -> None:
    script = f"{KERAS}CallbackList(add_history=True, steps=5, epochs=4).fit(range(2))"
    expected = {"step": 10, "steps": 20, "loss": 0.5, "isCounted": True}
    assert run(tmp_path, script) == (expected, "")


def test_batches_of_a_training_that_resumes_are_those_of_the_attempt(tmp_path: Path) -> None:
    script = f"{KERAS}CallbackList(steps=5, epochs=4).fit([2])"
    found, _ = run(tmp_path, script)
    assert (found["step"], found["steps"]) == (5, 10)


@pytest.mark.parametrize(
    "own",
    [
        "made = CallbackList()\nfor n in range(5): made.on_train_batch_end(n, {})",
        "made = CallbackList()\nmade.fit([0])",
        "CallbackList(steps=None, epochs=1).fit([0], loss=[1.0, 2.0])",
        "CallbackList(steps=None, epochs=1).fit([0], loss='none')",
        "made = CallbackList()\nmade.on_epoch_begin(0)\nmade.fit([0])",
    ],
    ids=["no epochs", "a loop of its own", "a loss for each sample", "no number", "twice"],
)
def test_script_with_callbacks_of_its_own_continues(tmp_path: Path, own: str) -> None:
    found, errors = run(tmp_path, KERAS + own)
    assert (found["step"], errors) == (5, "")


@pytest.mark.parametrize(
    "own",
    [
        "CallbackList(steps=float('inf'), epochs=2).fit([0])",
        "CallbackList(epochs='all').fit([0])",
        "CallbackList().on_epoch_begin(None)\nCallbackList().on_train_batch_end(None, {})",
        "import sys\nsys.stderr.close()\nCallbackList().on_train_batch_end(None, {})",
        "import sys\nsys.stderr = None\nCallbackList().on_train_batch_end(None, {})",
    ],
    ids=["endless", "a word", "nothing", "closed errors", "no errors"],
)
def test_what_cannot_be_counted_ends_the_counting_alone(tmp_path: Path, own: str) -> None:
    assert run(tmp_path, KERAS + own)[0] == {}


def test_trainings_of_a_script_one_after_another_are_added(tmp_path: Path) -> None:
    script = f"{KERAS}for _ in range(3): CallbackList(steps=5, epochs=1).fit([0])"
    found, _ = run(tmp_path, script)
    assert (found["step"], found["steps"]) == (15, 15)


def test_a_file_that_the_script_writes_is_left_to_it(tmp_path: Path) -> None:
    """docs/watching.md names the file, for metrics of the script's own."""
    own = "import os\nfile = open(os.path.join(os.environ['HVD_METRICS_DIR'], '3'), 'w')\n"
    script = f"{own}file.write('hvdchart_step 9000\\n')\nfile.close()\n{TORCH}"
    assert run(tmp_path, script) == ({"step": 9000}, "")


def test_a_file_of_an_earlier_attempt_is_replaced(tmp_path: Path) -> None:
    left = "import os\nfile = open(os.path.join(os.environ['HVD_METRICS_DIR'], '3'), 'w')\n"
    preload = f"{left}file.write('hvdchart_step 9000\\n')\nfile.close()\n"
    assert run(tmp_path, TORCH, preload) == ({"step": 3, "isCounted": True}, "")


def test_callbacks_of_the_script_are_passed_on_as_they_are(tmp_path: Path) -> None:
    script = f"{KERAS}own = (Callback(),)\nassert CallbackList(own, steps=1).given is own\n"
    assert run(tmp_path, script) == ({}, "")


def test_what_the_script_reports_is_not_counted(tmp_path: Path) -> None:
    script = f"import hvd_progress\nhvd_progress.report(70, steps=90)\n{TORCH}"
    found, _ = run(tmp_path, script)
    assert (found["step"], found["steps"]) == (70, 90)
    assert "isCounted" not in found


def test_a_fork_of_the_script_is_not_counted(tmp_path: Path) -> None:
    script = f"import os\nif os.fork():\n    os.wait()\n    os._exit(0)\n{TORCH}"
    assert run(tmp_path, script) == ({}, "")


# As if the attempt had resumed after step 40.
KEEP = """
import sys, types
from torch.optim.optimizer import Optimizer
keep = sys.modules["keep"] = types.ModuleType("keep")
keep.step = 40
keep.last_step = lambda: keep.step
one = Optimizer()
"""


def test_a_script_that_keeps_each_step_has_the_steps_of_the_training(tmp_path: Path) -> None:
    script = f"{KEEP}for _ in range(5):\n    one.step()\n    keep.step += 1\n"
    # The fifth is committed after it was counted.
    assert run(tmp_path, script) == ({"step": 44}, "")


@pytest.mark.parametrize(
    "loop",
    [
        "for n in range(8):\n    one.step()\n    if n % 4 == 3: keep.step += 1\n",
        "for n in range(8):\n    one.step()\n    if n % 4 == 3: keep.step += 4\n",
        "keep.last_step = lambda: None\nfor _ in range(8): one.step()\n",
        "del keep.last_step\nfor _ in range(8): one.step()\n",
    ],
    ids=["a commit an epoch", "a commit each fourth step", "several states", "an older keep"],
)
def test_steps_of_the_attempt_are_shown_unless_commits_count_them(
    tmp_path: Path, loop: str
) -> None:
    assert run(tmp_path, KEEP + loop) == ({"step": 8, "isCounted": True}, "")


def test_a_folder_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    script = f"import os\nos.rmdir(os.environ['HVD_METRICS_DIR'])\n{TORCH}"
    _, errors = run(tmp_path, script)
    assert errors.count("counted: FileNotFoundError") == 1


def test_a_framework_that_has_changed_is_imported_all_the_same(tmp_path: Path) -> None:
    # As of libraries for Python 2 and 3.
    script = "import sys\nclass Old:\n    find_module = lambda *_: None\n"
    script += "sys.meta_path.insert(0, Old())\n"
    file = tmp_path / "packages/keras/src/callbacks/callback_list.py"
    file.parent.mkdir(parents=True)
    changed = FRAMEWORKS["keras/src/callbacks/callback_list.py"].replace("CallbackList", "Other")
    script += f"import pathlib\npathlib.Path({str(file)!r}).write_text({changed!r})\n"
    script += "import keras.src.callbacks.callback_list as module\nassert module.Other\n"
    _, errors = run(tmp_path, script)
    assert "counted: AttributeError" in errors


def test_a_framework_that_was_imported_in_advance_is_counted(tmp_path: Path) -> None:
    found, _ = run(tmp_path, TORCH, "import torch.optim.optimizer\n")
    assert found["step"] == 3


def test_a_framework_that_was_imported_in_advance_may_have_changed(tmp_path: Path) -> None:
    preload = "import keras.src.callbacks.callback_list as module\ndel module.CallbackList\n"
    _, errors = run(tmp_path, "print('continues')", preload)
    assert "counted: AttributeError" in errors


def test_a_module_that_is_followed_has_its_own_loader(tmp_path: Path) -> None:
    show = "import torch.optim.optimizer as o, inspect\nassert 'class Distributed' in "
    show += "inspect.getsource(o) and type(o.__loader__).__name__ == 'SourceFileLoader'\n"
    assert run(tmp_path, show + TORCH)[0]["step"] == 3
