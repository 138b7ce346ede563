"""keep.py with each framework: the next attempt goes on where the ranks have been."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devtools.trials.sandbox import TWO_RANKS, make_open_folder, output_of
from tests.images.conftest import Sandboxes
from tests.results import result

SCRIPT = Path(__file__).with_name("keep_ranks.py")
# Three epochs of five batches, which begin anew after batch seven.
FIT = """
import gc, os, shutil
os.environ.update(HVD_RUN_ID="one", HVD_KEEP="/tmp/memory")
import keep
import tensorflow as tf
keras = tf.keras

def train(ends_at=None):
    gc.collect()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    for weight in model.trainable_variables:
        weight.assign(tf.ones_like(weight) * 0.1)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    rows = tf.reshape(tf.range(160.0), (40, 4)) / 160
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(8).repeat()
    class End(keras.callbacks.Callback):
        made = 0
        def on_train_batch_end(self, batch, logs=None):
            if logs:
                End.made += 1
                if End.made == ends_at:
                    raise KeyboardInterrupt
    try:
        model.fit(data, steps_per_epoch=5, epochs=3, verbose=0, callbacks=[keep.Callback(), End()])
    except KeyboardInterrupt:
        pass
    return End.made, [w.numpy().tolist() for w in model.trainable_variables]

made, calm = train()
assert made == 15
keep.State._fitted.clear()
shutil.rmtree("/tmp/memory")
assert train(ends_at=7)[0] == 7
made, resumed = train()
assert (made, resumed) == (8, calm), (made, resumed, calm)
try:
    train()
except ValueError as problem:
    print("REFUSED", problem)
"""


@pytest.mark.parametrize(
    ("name", "framework"),
    [("examples", "tensorflow"), ("examples-2.15", "tensorflow"), ("examples-pytorch", "torch")],
)
def test_ranks_go_on_with_the_newest_state_that_any_of_them_has(
    sandboxes: Sandboxes, name: str, framework: str
) -> None:
    sandbox = sandboxes(name)
    make_open_folder(sandbox.folder / "kept")
    shutil.copy(SCRIPT, sandbox.folder)
    done = sandbox.run(
        *TWO_RANKS, "python3", f"/output/{SCRIPT.name}", framework, "/output/kept",
        PYTHONPATH="/examples",
    )  # fmt: skip
    assert done.returncode == 0, output_of(done)
    ranks = result(done)["ranks"]
    for number, told in enumerate(ranks):
        found = told["found"]
        went_on = {name: step for name, (step, _) in found.items()}
        assert went_on == {
            "undisturbed": 0, "all are there": 7, "rank 1 is new": 7, "rank 0 is new": 7,
            "all are new": 5, "interrupted": 6,
        }  # fmt: skip
        # Without seeds of Keras' own, the dropout of TensorFlow 2.15 is not part of the state.
        if name != "examples-2.15":
            for case in ("all are there", "interrupted"):
                assert found[case] == [went_on[case], found["undisturbed"][1]], (number, case)
        print(f"{name}: a commit of 100 MB: {told['commit']:.0f} ms, to restore it: "
              f"{told['restore']:.0f} ms")  # fmt: skip
    if framework == "tensorflow":
        # All weights are averaged: new random numbers of a new rank change them on both.
        for case, (_, digest) in ranks[0]["found"].items():
            assert digest == ranks[1]["found"][case][1], case


@pytest.mark.parametrize("name", ["examples", "examples-2.15"])
def test_fit_goes_on_after_the_last_batch(sandboxes: Sandboxes, name: str) -> None:
    printed = sandboxes(name).succeed("python3", "-c", FIT, PYTHONPATH="/examples")
    assert "REFUSED keep: a fit() has used the state 'main'" in printed
