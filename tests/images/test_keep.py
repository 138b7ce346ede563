"""keep with each framework: the next attempt continues where the ranks have been."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import ROOT
from hvd_pods.library import keep
from images.builder.build import build_image
from tests.images.sandboxes import EACH_KERAS, Sandboxes, put_files
from tests.support.in_image.sandbox import (
    TWO_RANKS,
    UNKNOWN_UID,
    Result,
    Sandbox,
    make_open_folder,
    output_of,
)
from tests.support.in_image.sandbox import sandbox as open_sandbox
from tests.support.results import result_of

SCRIPT = Path(__file__).with_name("keep_ranks.py")
SHARDS = Path(__file__).with_name("keep_shards.py")
SIZES = Path(__file__).with_name("keep_sizes.py")
CHANGES = Path(__file__).with_name("keep_changes.py")
JAX = Path(__file__).with_name("keep_jax.py")
KEEP = Path(keep.__file__).parent
# The images of the tests in pods, of which one has JAX.
OTHER_IMAGES = ROOT / "tests" / "e2e" / "images" / "versions.yaml"
# Five epochs of six batches, which begin anew after some. No epoch is much better than the first: a
# callback that counts them halves the learning rate twice.
FIT = """
import os, shutil
os.environ.update(HVD_RUN_ID="one", HVD_KEEP="/tmp/memory")
import keep
import tensorflow as tf
keras = tf.keras

def train(ends_at=None, every=1, at_once=1):
    keep.kept_state.states.clear()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    for weight in model.trainable_variables:
        weight.assign(tf.ones_like(weight) * 0.1)
    model.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=at_once)
    rows = tf.reshape(tf.range(192.0), (48, 4)) / 192
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(8).repeat()
    class End(keras.callbacks.Callback):
        made = 0
        def on_train_batch_end(self, batch, logs=None):
            if logs:
                End.made += at_once
                if End.made == ends_at:
                    raise KeyboardInterrupt
    slower = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=2, min_delta=100)
    kept = keep.State(model=model, optimizer=model.optimizer, slower=slower)
    if at_once == 1:
        # What the callback has learned outlives that fit() resets it after this.
        kept.restore()
    keeper = keep.Callback(kept, every=every)
    try:
        model.fit(data, steps_per_epoch=6, epochs=5, verbose=0, callbacks=[slower, keeper, End()])
    except KeyboardInterrupt:
        pass
    rate = round(float(model.optimizer.learning_rate.numpy()), 6)
    return End.made, rate, [w.numpy().tolist() for w in model.trainable_variables]

# After which batch the training ends, and how many batches the next one makes.
for ends_at, every, at_once, left in [(8, 1, 1, 22), (20, 1, 1, 10), (24, 1, 1, 7), (20, 8, 1, 14),
                                      (20, 1, 2, 10), (22, 4, 2, 10)]:
    shutil.rmtree("/tmp/memory", ignore_errors=True)
    keep.kept_state.fitted.clear()
    made, rate, calm = train(at_once=at_once)
    assert (made, rate) == (30, 0.0025), (made, rate)
    shutil.rmtree("/tmp/memory")
    keep.kept_state.fitted.clear()
    train(ends_at, every, at_once)
    assert train(every=every, at_once=at_once) == (left, rate, calm), (ends_at, every, at_once)
try:
    train()
except ValueError as problem:
    print("REFUSED", problem)
"""


# The step after which the ranks go on in each case of keep_ranks.py.
STEPS = {
    "undisturbed": 0,
    "all are there": 7,
    "rank 1 is new": 7,
    "rank 0 is new": 7,
    "all are new": 5,
    "interrupted": 6,
}

# The same for keep_shards.py, whose checkpoint is of step 5.
STEPS_OF_SHARDS = {
    "undisturbed": 0,
    "all are there": 7,
    "worker 1 is new": 7,
    "worker 0 is new": 7,
    "one after the other": 7,
    "a shard is torn": 7,
    "a shard is torn and its copy is lost": 6,
    "two are new": 5,
    "all are new": 5,
}


# In each case the step, and a digest of what a rank had at the end.
Found = dict[str, list[Any]]
# Each Keras, and PyTorch.
KERAS_3, KERAS_2 = EACH_KERAS
PYTORCH = pytest.param(None, id="pytorch")


def train(
    sandbox: Sandbox, script: Path, *arguments: str, launcher: tuple[str, ...] = (), **more: str
) -> Result:
    """Runs a script that uses `keep`, to its end."""
    command = (*launcher, "python3", put_files(sandbox, script), *arguments)
    variables = {"PYTHONPATH": "/examples", **more}
    done = sandbox.run(*command, uid=UNKNOWN_UID, **variables)
    assert done.returncode == 0, output_of(done)
    return done


@pytest.fixture(scope="module", params=[KERAS_3, KERAS_2, PYTORCH])
def kept(request: pytest.FixtureRequest, sandboxes: Sandboxes) -> list[Found]:
    """What each of two ranks found in keep_ranks.py, with each framework and each Keras."""
    keras = request.param
    framework = "torch" if keras is None else "tensorflow"
    sandbox = sandboxes("examples-pytorch" if keras is None else "examples")
    folder = make_open_folder(sandbox.folder / ("kept-by-keras-2" if keras else "kept"))
    place = f"/output/{folder.name}"
    done = train(sandbox, SCRIPT, framework, place, launcher=TWO_RANKS, **(keras or {}))
    ranks: list[Found] = result_of(done)["ranks"]
    return ranks


@pytest.fixture
def pytorch(sandboxes: Sandboxes, kind: str) -> Sandbox:
    """A sandbox whose PyTorch has this kind of sharding."""
    sandbox = sandboxes("examples-pytorch")
    if kind == "fsdp2" and sandbox.succeed("python3", "-c", CPU_STREAMS).strip() != "True":
        pytest.skip("this PyTorch has no fully_shard on CPUs")
    return sandbox


def test_ranks_continue_with_the_newest_state_that_any_of_them_has(kept: list[Found]) -> None:
    steps = [{case: step for case, (step, _) in rank.items()} for rank in kept]
    assert steps == [STEPS, STEPS]


# Keras 2 has no seeds of its own: its dropout is not part of the state.
WITHOUT_SEEDS = pytest.param(*KERAS_2.values, id="keras 2", marks=pytest.mark.skip("no seeds"))


@pytest.mark.parametrize("kept", [KERAS_3, WITHOUT_SEEDS, PYTORCH], indirect=True)
@pytest.mark.parametrize("case", ["all are there", "interrupted"])
def test_ranks_that_continue_end_as_if_undisturbed(kept: list[Found], case: str) -> None:
    ends = [rank[case][1] for rank in kept]
    assert ends == [rank["undisturbed"][1] for rank in kept]


# PyTorch's statistics of a batch are each rank's own.
@pytest.mark.parametrize("kept", EACH_KERAS, indirect=True)
@pytest.mark.parametrize("case", STEPS)
def test_both_ranks_end_with_the_same_weights(kept: list[Found], case: str) -> None:
    """New random numbers of a new rank change them on both: all weights are averaged."""
    first, second = (rank[case][1] for rank in kept)
    assert first == second


# Where it lacks this, PyTorch has no fully_shard on CPUs: 2.6 does, and 2.11 does not.
CPU_STREAMS = "import torch; print(hasattr(torch.cpu.Stream, 'record_event'))"


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp1-orig", "fsdp2", "zero"])
def test_a_sharded_model_continues_as_if_undisturbed(pytorch: Sandbox, kind: str) -> None:
    make_open_folder(pytorch.folder / f"shards-{kind}")
    done = train(pytorch, SHARDS, kind, f"/output/shards-{kind}")
    for rank in result_of(done)["ranks"]:
        assert {case: step for case, (step, _) in rank.items()} == STEPS_OF_SHARDS
        assert {digest for _, digest in rank.values()} == {rank["undisturbed"][1]}


def assert_divided(attempts: list[list[Any]]) -> None:
    """Each of them began with the very state with which the one before has ended.

    An attempt has a number of ranks, its first step, and digests at its begin and end.
    """
    for (_, _, _, end), (size, step, begin, _) in pairwise(attempts):
        assert begin == end, f"{size} ranks after step {step}"


@pytest.mark.parametrize("kind", ["dtensor", "fsdp2"])
def test_shards_are_divided_among_another_number_of_ranks(pytorch: Sandbox, kind: str) -> None:
    make_open_folder(pytorch.folder / f"sizes-{kind}")
    done = train(pytorch, SIZES, kind, f"/output/sizes-{kind}")
    attempts = result_of(done)["attempts"]
    ranks_and_steps = [[4, 0], [3, 5], [2, 8], [3, 10], [3, 10], [3, 10], [4, 11]]
    assert [attempt[:2] for attempt in attempts] == ranks_and_steps
    # Only where the number has changed: a loss after that takes the new shards.
    assert done.stderr.count("ranks are divided anew") == 4
    assert_divided(attempts)


def test_what_changes_between_two_commits_is_kept(sandboxes: Sandboxes) -> None:
    sandbox = sandboxes("examples-pytorch")
    make_open_folder(sandbox.folder / "changes")
    done = train(sandbox, CHANGES, "/output/changes/memory")
    assert {case: wrong for case, wrong in result_of(done).items() if wrong} == {}


def test_arrays_of_jax_are_kept_and_divided(tmp_path: Path) -> None:
    wheels = build_image("wheels", versions=OTHER_IMAGES)
    with open_sandbox(wheels, tmp_path / "output") as sandbox:
        make_open_folder(sandbox.folder / "kept")
        shutil.copytree(KEEP, sandbox.folder / "keep")
        done = train(sandbox, JAX, "/output/kept", PYTHONPATH="/output")
    attempts = result_of(done)["attempts"]
    assert [attempt[:2] for attempt in attempts] == [[3, 0], [3, 5], [2, 5], [2, 8], [3, 10]]
    assert_divided(attempts)


@pytest.mark.parametrize("keras", EACH_KERAS)
def test_fit_continues_after_the_last_batch(examples: Sandbox, keras: Mapping[str, str]) -> None:
    variables = {"PYTHONPATH": "/examples", **keras}
    printed = examples.succeed("python3", "-c", FIT, uid=UNKNOWN_UID, **variables)
    assert "REFUSED keep: a fit() has used the state 'main'" in printed
