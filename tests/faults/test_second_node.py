"""Trainings on two nodes, of which one is drained or dies."""

from __future__ import annotations

import time

import pytest

from devtools.localkube.instance import Instance
from tests.faults.node import cut_power
from tests.faults.training import Training
from tests.waiting import wait_until

STEPS = 120
FAULT_AT = 45


def begin(training: Training, second: Instance, **worker: object) -> None:
    """Start a run, and wait until it is in the middle, with a rank on the second node."""
    # What becomes of the master is another fault.
    first = {"nodeSelector": {"kubernetes.io/hostname": second.first.node_name}}
    training.run_to(FAULT_AT, STEPS, worker=worker, master=first)
    if second.node_name not in nodes(training):
        # Of workers and spares, the first node's answered first. One that is lost is replaced.
        lost = training.newest(1)["host"]
        training.namespace.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
        wait_until(lambda: second.node_name in nodes(training), 180, "a rank on the second node")


def nodes(training: Training) -> list[str]:
    """The nodes that ranks are on."""
    return [training.host(rank)["spec"]["nodeName"] for rank in (0, 1)]


@pytest.mark.rare
@pytest.mark.fault("node cordoned and drained")
def test_drained_node(training: Training, second_node: Instance) -> None:
    begin(training, second_node)
    fault = time.time()
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
    try:
        training.namespace.kubectl("drain", second_node.node_name, *options)
        training.finish(fault)
    finally:
        training.namespace.kubectl("uncordon", second_node.node_name)


@pytest.mark.rare
@pytest.mark.fault("node without power, with spares")
def test_dead_node_with_spares(training: Training, second_node: Instance) -> None:
    # Two of the four workers are on each node.
    begin(training, second_node, spares=2)
    fault = time.time()
    cut_power(second_node)
    training.finish(fault)


@pytest.mark.rare
@pytest.mark.fault("node without power")
def test_dead_node(training: Training, second_node: Instance) -> None:
    # Kubernetes waits for five minutes by default.
    soon = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    begin(training, second_node, tolerations=[soon])
    fault = time.time()
    cut_power(second_node)
    training.finish(fault)
