"""The digits example: trains, resumes, and fails when it should."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.images.sandboxes import EACH_KERAS
from tests.support.in_image.checks import WITH_TF_KERAS
from tests.support.in_image.sandbox import (
    OWN_UID,
    TWO_RANKS,
    UNKNOWN_UID,
    Sandbox,
    make_open_folder,
)
from tests.support.results import read_result

DIGITS = ("python", "digits.py")


class Trained(NamedTuple):
    """What a training has printed, and its result."""

    printed: str
    result: dict[str, Any]


class Example(NamedTuple):
    """The example with one Keras, and where its runs write, as they see it."""

    inside: Sandbox
    keras: Mapping[str, str]
    output: str

    def train(self, *options: str, ranks: int = 2) -> Trained:
        launcher = TWO_RANKS if ranks == 2 else ()
        variables = {"OUTPUT_PATH": self.output, **self.keras}
        command = (*launcher, *DIGITS, *options)
        printed = self.inside.succeed(*command, uid=UNKNOWN_UID, **variables)
        return Trained(printed, read_result(printed))


@pytest.fixture(scope="module", params=EACH_KERAS)
def example(request: pytest.FixtureRequest, examples: Sandbox) -> Example:
    """The example with each Keras in turn."""
    name = "learnt-by-keras-2" if request.param else "learnt"
    make_open_folder(examples.folder / name)
    return Example(examples, request.param, f"/output/{name}")


@pytest.fixture(scope="module")
def learnt(example: Example) -> Trained:
    """A run of two ranks."""
    return example.train()


@pytest.fixture(scope="module")
def resumed(example: Example, learnt: Trained) -> Trained:
    """A run of one rank and one epoch more, as after a change of the cluster's size."""
    return example.train("--epochs", str(learnt.result["epochs"] + 1), ranks=1)


def test_two_ranks_learn_to_read_digits(learnt: Trained) -> None:
    assert learnt.result["accuracy"] >= 0.95
    assert learnt.result["ranks"] == 2
    assert learnt.result["samples_per_second"] > 0
    assert learnt.result["resumed_after_epoch"] == 0


def test_weights_of_both_ranks_are_equal(learnt: Trained) -> None:
    assert learnt.result["disagreeing_ranks"] == []


@pytest.mark.parametrize("line", ["first allreduce: 2 ranks at ", "held-out accuracy: "])
def test_rank_0_alone_prints_what_all_ranks_have(learnt: Trained, line: str) -> None:
    assert learnt.printed.count(line) == 1


def test_run_resumes_after_the_last_epoch_of_another_run(learnt: Trained, resumed: Trained) -> None:
    epochs = learnt.result["epochs"]
    assert resumed.result["resumed_after_epoch"] == epochs
    assert f"Epoch {epochs + 1}/{epochs + 1}" in resumed.printed
    assert f"Epoch {epochs}/" not in resumed.printed


def test_learning_rate_is_that_of_the_ranks_there_are(learnt: Trained, resumed: Trained) -> None:
    assert learnt.result["learning_rate"] == 0.002
    assert resumed.result["learning_rate"] == 0.001


def test_optimizer_continues_to_count_its_steps(learnt: Trained, resumed: Trained) -> None:
    assert resumed.result["steps"] > learnt.result["steps"] > 0
    # A rank alone takes twice the steps for an epoch.
    one_epoch = resumed.result["steps"] - learnt.result["steps"]
    expected = 2 * learnt.result["steps"] / learnt.result["epochs"]
    assert one_epoch == pytest.approx(expected, abs=2)


def test_run_with_nothing_left_to_do_has_the_weights_on_all_ranks(
    example: Example, learnt: Trained, resumed: Trained
) -> None:
    """Every rank has what rank 0 has restored."""
    third = example.train("--epochs", str(learnt.result["epochs"] + 1))
    assert third.result["weights"] == resumed.result["weights"]
    assert "Epoch" not in third.printed


def test_accuracy_below_the_target_fails(examples: Sandbox) -> None:
    done = examples.run(*DIGITS, "--epochs", "1", "--target-accuracy", "1.01")
    assert done.returncode == 1
    assert "below the target of 1.01" in done.stdout
    assert read_result(done.stdout)["ok"] is False


def test_shards_are_disjoint_equally_long_and_cover_the_data(examples: Sandbox) -> None:
    examples.python(
        "import numpy as np, pathlib, digits;"
        "train, held = digits.load_digits(pathlib.Path('digits.csv.gz'));"
        "assert len(train.labels) + len(held.labels) == 1797;"
        "assert train.images.shape[1:] == (8, 8, 1);"
        "assert (train.images.min(), train.images.max()) == (0, 1);"
        "assert set(held.labels) == set(range(10));"
        "rows = {i.tobytes() for i in train.images};"
        "assert not rows & {i.tobytes() for i in held.images};"
        "shards = [digits.shard(train, r, 3) for r in range(3)];"
        "assert {len(s.labels) for s in shards} == {len(train.labels) // 3};"
        "assert len({i.tobytes() for s in shards for i in s.images}) >= len(rows) - 3"
    )


# Each Keras draws its first weights in its own way, so both are given the same.
SAME_START = """
import sys, numpy as np, digits
made = digits.make_model
def make_model(learning_rate):
    model, random = made(learning_rate), np.random.default_rng(0)
    model.set_weights([random.normal(0, 0.1, w.shape).astype(w.dtype) for w in model.get_weights()])
    return model
digits.make_model = make_model
sys.exit(digits.main())
"""
# One thread each: how many there are changes the order of sums.
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
# Relatively: what is computed in another order may be rounded otherwise.
TOLERANCE = 1e-3


def losses_of(examples: Sandbox, keras: Mapping[str, str]) -> list[float]:
    """The losses of two epochs from the same weights, which both ranks agree on."""
    options = ("--epochs", "2", "--no-shuffle", "--target-accuracy", "0.1")
    program = ("python", "-c", SAME_START, *options)
    printed = examples.succeed(*TWO_RANKS, *program, uid=OWN_UID, **ONE_THREAD, **keras)
    trained = read_result(printed)
    assert trained["disagreeing_ranks"] == []
    losses: list[float] = trained["losses"]
    return losses


@pytest.mark.rare
def test_losses_are_equal_with_keras_2_and_3(examples: Sandbox) -> None:
    before = losses_of(examples, WITH_TF_KERAS)
    after = losses_of(examples, {})
    assert after == pytest.approx(before, rel=TOLERANCE)
    # It did learn: equal losses of a model that stands still would prove nothing.
    assert after[1] < 0.8 * after[0]
