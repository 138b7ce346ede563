"""The benchmark's protocol, with stand-ins for TensorFlow and Horovod that count the steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvdchart.tune.in_pod import benchmark

TENSORFLOW = """
import os
from types import SimpleNamespace
from unittest.mock import MagicMock
module = MagicMock()
def function(step):
    def run():
        with open(os.environ["STEPS"], "a") as steps:
            steps.write("x")
        return step()
    return run
module.function = function
module.keras.applications = SimpleNamespace(Tiny=MagicMock(), Big=MagicMock(), tiny=None)
tiny = module.keras.applications.Tiny.return_value
tiny.trainable_variables, tiny.input_shape = [MagicMock()], (None, 299, 299, 3)
def uniform(shape, **_):
    with open(os.environ["SHAPES"], "a") as shapes:
        print(shape, file=shapes)
module.random.uniform = uniform
import sys
sys.modules[__name__] = module
"""
HOROVOD = """
rank, size, local_rank = (lambda: int(__import__("os").environ["RANK"])), (lambda: 3), (lambda: 0)
def init():
    pass
def DistributedGradientTape(tape):
    return tape
"""


def run(folder: Path, *options: str, rank: int = 0, lines: str = "") -> tuple[list[str], int]:
    """Run the benchmark: the lines that it prints and the number of its steps."""
    done = start(folder, *options, rank=rank, lines=lines)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), len((folder / "steps").read_text())


def start(
    folder: Path, *options: str, rank: int = 0, lines: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the benchmark to its end, with the model Tiny unless the options have another one."""
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    (folder / "horovod").mkdir(exist_ok=True)
    (folder / "horovod" / "__init__.py").write_text("")
    (folder / "horovod" / "tensorflow.py").write_text(HOROVOD)
    steps, shapes = folder / "steps", folder / "shapes"
    steps.write_text("")
    return subprocess.run(
        [sys.executable, "-c", Path(benchmark.__file__).read_text(), "--model", "Tiny", *options],
        env={
            **os.environ, "PYTHONPATH": str(folder), "STEPS": str(steps), "SHAPES": str(shapes),
            "RANK": str(rank),
        },
        input=lines, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_rank_0_prints_the_speed_of_all_ranks_after_the_warm_up(tmp_path: Path) -> None:
    (line,), steps = run(tmp_path, "--warm-up", "2", "--steps", "5")
    assert steps == 7
    assert json.loads(line.removeprefix("RESULT "))["imagesPerSecond"] > 0


def test_images_have_the_size_that_the_network_is_made_for(tmp_path: Path) -> None:
    run(tmp_path, "--batch-size", "2")
    assert (tmp_path / "shapes").read_text().splitlines() == ["[2, 299, 299, 3]", "[2]"]


def test_network_for_images_of_any_size_gets_224_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as MobileNetV3."""
    changed = TENSORFLOW.replace("(None, 299, 299, 3)", "(None, None, None, 3)")
    monkeypatch.setattr(f"{__name__}.TENSORFLOW", changed)
    run(tmp_path, "--batch-size", "2")
    assert (tmp_path / "shapes").read_text().splitlines() == ["[2, 224, 224, 3]", "[2]"]


def test_other_ranks_print_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, rank=1) == ([], 13)


@pytest.mark.parametrize("turns", [0, 2])
def test_turns_train_once_for_each_line(tmp_path: Path, turns: int) -> None:
    options = ("--turns", "--warm-up", "1", "--steps", "4")
    printed, steps = run(tmp_path, *options, lines="go\n" * turns)
    assert printed[0] == "ready"
    assert len(printed) == 1 + turns
    assert all(float(speed) > 0 for speed in printed[1:])
    assert steps == 1 + turns * 5, "each turn warms up with one step"


@pytest.mark.parametrize("name", ["tiny", "Huge"])
def test_unknown_model_is_refused_with_those_there_are(tmp_path: Path, name: str) -> None:
    done = start(tmp_path, "--model", name)
    assert done.returncode == 1
    assert done.stderr == f"--model {name}: no such model of Keras: use Big, Tiny\n"
