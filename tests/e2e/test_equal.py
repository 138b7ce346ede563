"""The same training comes to the same model, wherever its ranks are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvd_pods.shared.thread_counts import YIELD
from tests.support.namespace import Namespace, Values
from tests.support.results import read_result

# In all of them a step is over the same 64 images, and so is the learning rate.
GLOBAL_BATCH = 64
LEARNING_RATE = 0.002
EPOCHS = 2
# One thread each: how many there are changes the order of sums, and with it the last bits.
ENVIRONMENT = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", YIELD: "1"}
# Two halves of a batch are summed in another order than the full batch: a relative difference of
# 4e-7 was measured.
TOLERANCE = 1e-4


def command(ranks: int) -> list[str]:
    options = {
        "--batch-size": GLOBAL_BATCH // ranks,
        "--learning-rate": LEARNING_RATE / ranks,
        "--epochs": EPOCHS,
        "--target-accuracy": 0.1,
    }
    words = [word for pair in options.items() for word in map(str, pair)]
    return ["python", "/examples/digits.py", "--no-shuffle", *words]


def values(workers: int, slots: int) -> Values:
    env = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    return {
        "worker": {"number": workers, "slots": slots, "env": env},
        "master": {"args": command(workers * slots)},
    }


def on_the_bare_machine(folder: Path) -> dict[str, Any]:
    """Two ranks in the root file system of the examples, without Kubernetes."""
    # Here, so that collecting the tests needs nothing that builds an image.
    from images.builder.build import build_image
    from tests.support.in_image.sandbox import TWO_RANKS, sandbox

    assignments = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    with sandbox(build_image("examples"), folder) as inside:
        return read_result(inside.succeed("env", *assignments, *TWO_RANKS, *command(2)))


# The ranks of each layout: the workers and their slots, or two on the machine without Kubernetes.
RANKS = {"bare": 2, "one": 1, "pod": 2, "pods": 2}
LAYOUTS = {"one": (1, 1), "pod": (1, 2), "pods": (2, 1)}


@pytest.fixture(scope="class")
def results(
    namespace: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What each layout's training has printed, by its name. They train at the same time."""
    for release, (workers, slots) in LAYOUTS.items():
        namespace.install(release, values(workers, slots))
    folder = tmp_path_factory.mktemp("bare") / "output"
    printed = {"bare": on_the_bare_machine(folder)}
    for release in LAYOUTS:
        namespace.assert_completes(release)
        printed[release] = read_result(namespace.log(release))
    return printed


class TestEqualTrainings:
    @pytest.mark.parametrize("layout", RANKS)
    def test_training_has_its_ranks(self, results: dict[str, dict[str, Any]], layout: str) -> None:
        assert results[layout]["ranks"] == RANKS[layout]

    @pytest.mark.parametrize("layout", RANKS)
    def test_weights_of_all_ranks_are_equal(
        self, results: dict[str, dict[str, Any]], layout: str
    ) -> None:
        """Bit for bit: the script compares all ranks' weights with rank 0's."""
        assert results[layout]["disagreeing_ranks"] == []

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_losses_are_those_of_the_bare_machine(
        self, results: dict[str, dict[str, Any]], layout: str
    ) -> None:
        bare = results["bare"]
        assert len(bare["losses"]) == EPOCHS
        assert results[layout]["losses"] == pytest.approx(bare["losses"], rel=TOLERANCE)
        assert results[layout]["steps"] == bare["steps"]

    def test_model_learns(self, results: dict[str, dict[str, Any]]) -> None:
        """Equal losses of a model that stands still would prove nothing."""
        losses = results["one"]["losses"]
        assert losses[1] < 0.8 * losses[0]
