"""A training with a rank on the second node."""

from __future__ import annotations

from devtools.common.waiting import wait_until
from devtools.localkube.instance import Instance
from tests.faults.training import FAULT_STEP, TRAINING_STEPS, Training


def begin_on_two_nodes(training: Training, second: Instance, **worker: object) -> None:
    """Start a run, and wait until it is in the middle, with a rank on the second node."""
    # What becomes of the master is another fault.
    first = {"nodeSelector": {"kubernetes.io/hostname": second.first.node_name}}
    training.run_to(FAULT_STEP, TRAINING_STEPS, worker=worker, master=first)
    if second.node_name not in nodes(training):
        # Of workers and spares, the first node's answered first. One that is lost is replaced.
        lost = training.newest(1)["host"]
        training.namespace.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
        wait_until(lambda: second.node_name in nodes(training), 180, "a rank on the second node")


def nodes(training: Training) -> list[str]:
    """The nodes that ranks are on."""
    return [training.host(rank)["spec"]["nodeName"] for rank in (0, 1)]
