"""The U-Net of the examples loses a worker, the master or a node, and comes to the same model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from devtools.localkube.instance import Instance
from tests.faults.node import cut_power
from tests.faults.second_node import begin_on_two_nodes
from tests.faults.training import CHECKPOINT_EVERY, SCRIPT, Place, Training

UNET_STEPS = 120
# In the middle, and between two checkpoints.
WORKER_AT = 35
MASTER_AT = 75
SMALL = (
    "--filters",
    "4",
    "--batch-size",
    "4",
    "--learning-rate",
    "0.001",
    "--warmup-steps",
    "10",
    "--check-every",
    str(CHECKPOINT_EVERY),
    "--target-dice",
    "0",
)
# The example's own target is for more filters and steps. At 0, nothing would have been learnt.
LEAST_DICE = 0.5
# How many threads there are changes the order of sums, and with it the last bits.
ONE_THREAD = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class UNet(Training):
    """A release that trains the U-Net."""

    scripts = (SCRIPT, Path(__file__).with_name("unet_steps.py"))

    def command(self, steps: int) -> list[str]:
        """What the ranks run."""
        return ["python3", "unet_steps.py", "--steps", str(steps), *SMALL]

    def install(self, steps: int, **changes: Any) -> None:
        """Start the run, with one thread for each rank."""
        output = {"name": "OUTPUT_PATH", "value": "/output"}
        env = [output, *({"name": name, "value": "1"} for name in ONE_THREAD)]
        super().install(steps, **{**changes, "worker": {"env": env, **changes.get("worker", {})}})


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """What `learn_undisturbed` has found out, for the tests after it."""
    return {}


def learn_undisturbed(place: Place, kept: dict[str, Any]) -> dict[str, Any]:
    """The result of a training that nothing happens to."""
    if not kept:
        training = UNet(*place, "alone")
        training.install(UNET_STEPS)
        kept.update(training.result())
    return kept


def assert_same_model(result: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    """The same weights, and so the same Dice coefficient, although the run was resumed."""
    assert result["resumed_after_step"] > 0
    same = ("step", "ranks", "ranks_agree", "dice", "weights")
    assert {name: result[name] for name in same} == {name: undisturbed[name] for name in same}
    assert result["dice"] > LEAST_DICE


@pytest.mark.rare
@pytest.mark.fault("U-Net: worker deleted")
@pytest.mark.fault("U-Net: master deleted after that")
def test_unet_without_a_worker_and_without_the_master(place: Place, kept: dict[str, Any]) -> None:
    undisturbed = learn_undisturbed(place, kept)
    training = UNet(*place, "hvd")
    first = training.run_to(WORKER_AT, UNET_STEPS)
    place.namespace.kubectl("delete", "pod", "hvd-worker-1", "--grace-period=0", "--force")
    training.wait_for_step(MASTER_AT)
    second = time.time()
    place.namespace.kubectl("delete", "pod", training.master(), "--wait=false")
    result = training.result()
    dice = round(result["dice"], 4)
    training.tell(training.pause_after(first, second), fault="U-Net: worker deleted", dice=dice)
    after = training.pause_after(second)
    training.tell(after, fault="U-Net: master deleted after that", dice=dice)
    assert_same_model(result, undisturbed)


@pytest.mark.rare
@pytest.mark.fault("U-Net: node without power, with spares")
def test_unet_without_a_node(place: Place, kept: dict[str, Any], second_node: Instance) -> None:
    undisturbed = learn_undisturbed(place, kept)
    training = UNet(*place, "hvd")
    # Two of the four workers are on each node.
    begin_on_two_nodes(training, second_node, spares=2)
    fault = time.time()
    cut_power(second_node)
    result = training.result()
    training.tell(training.pause_after(fault), dice=round(result["dice"], 4))
    assert_same_model(result, undisturbed)
