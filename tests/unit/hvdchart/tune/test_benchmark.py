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
import itertools, os, time
from types import SimpleNamespace
from unittest.mock import MagicMock
module = MagicMock()
def function(step):
    def run():
        with open(os.environ["STEPS"], "a") as steps:
            steps.write("x")
        step()
        assert tiny.call_args.kwargs == {"training": True}
    return run
module.function = function
# Each measurement takes seven seconds by this clock.
time.monotonic = itertools.count(0, 7).__next__
module.config.list_physical_devices = lambda kind: []
def set_visible_devices(device, kind):
    with open(os.environ["SHAPES"], "a") as shapes:
        print(device, kind, file=shapes)
module.config.set_visible_devices = set_visible_devices
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
rank, size, local_rank = (lambda: int(__import__("os").environ["RANK"])), (lambda: 3), (lambda: 1)
def init():
    pass
def DistributedGradientTape(tape):
    return tape
"""


def run(folder: Path, *options: str, rank: int = 0) -> tuple[list[str], int]:
    """Run the benchmark to its end: the lines that it prints and the number of its steps."""
    process = start(folder, *options, rank=rank)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.splitlines(), len((folder / "steps").read_text())


def start(folder: Path, *options: str, rank: int = 0) -> subprocess.Popen[str]:
    """Start the benchmark, with the model Tiny unless the options have another one."""
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    (folder / "horovod").mkdir(exist_ok=True)
    (folder / "horovod" / "__init__.py").write_text("")
    (folder / "horovod" / "tensorflow.py").write_text(HOROVOD)
    steps, shapes = folder / "steps", folder / "shapes"
    steps.write_text("")
    return subprocess.Popen(
        [sys.executable, "-c", Path(benchmark.__file__).read_text(), "--model", "Tiny", *options],
        env={
            **os.environ, "PYTHONPATH": str(folder), "STEPS": str(steps), "SHAPES": str(shapes),
            "RANK": str(rank), "PYTHONUNBUFFERED": "",
        },
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_rank_0_prints_the_speed_of_all_ranks_after_the_warm_up(tmp_path: Path) -> None:
    (line,), steps = run(tmp_path, "--warm-up", "2", "--steps", "5", "--batch-size", "4")
    assert steps == 7
    # 3 ranks x 5 steps x 4 images in 7 seconds.
    assert json.loads(line.removeprefix("RESULT ")) == {"imagesPerSecond": 8.571}


@pytest.mark.slow
def test_images_have_the_size_that_the_network_is_made_for(tmp_path: Path) -> None:
    run(tmp_path, "--batch-size", "2")
    assert (tmp_path / "shapes").read_text().splitlines() == ["[2, 299, 299, 3]", "[2]"]


@pytest.mark.slow
def test_network_for_images_of_any_size_gets_224_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as MobileNetV3."""
    changed = TENSORFLOW.replace("(None, 299, 299, 3)", "(None, None, None, 3)")
    monkeypatch.setattr(f"{__name__}.TENSORFLOW", changed)
    run(tmp_path, "--batch-size", "2")
    assert (tmp_path / "shapes").read_text().splitlines() == ["[2, 224, 224, 3]", "[2]"]


@pytest.mark.slow
def test_rank_uses_the_gpu_of_its_number_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = TENSORFLOW.replace("lambda kind: []", "lambda kind: [f'{kind} 0', f'{kind} 1']")
    monkeypatch.setattr(f"{__name__}.TENSORFLOW", changed)
    run(tmp_path)
    assert (tmp_path / "shapes").read_text().splitlines()[0] == "GPU 1 GPU"


@pytest.mark.slow
def test_other_ranks_print_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, rank=1) == ([], 13)
    assert (tmp_path / "shapes").read_text().splitlines() == ["[16, 299, 299, 3]", "[16]"]


@pytest.mark.slow
@pytest.mark.parametrize("turns", [0, 2])
def test_turns_train_once_for_each_line(tmp_path: Path, turns: int) -> None:
    """Its speed is printed at once: the one that asks waits for it before it asks another one."""
    process = start(tmp_path, "--turns", "--warm-up", "1", "--steps", "4", "--batch-size", "7")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(turns):
        process.stdin.write("go\n")
        process.stdin.flush()
        # 4 steps x 7 images in 7 seconds.
        assert process.stdout.readline() == "4.0\n"
    output, errors = process.communicate()
    assert (process.returncode, output) == (0, ""), errors
    steps = len((tmp_path / "steps").read_text())
    assert steps == 1 + turns * 5, "each turn warms up with one step"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "Huge"])
def test_unknown_model_is_refused_with_those_there_are(tmp_path: Path, name: str) -> None:
    process = start(tmp_path, "--model", name)
    errors = process.communicate()[1]
    assert process.returncode == 1
    assert errors == f"--model {name}: no such model of Keras: use Big, Tiny\n"
