"""Trainings on two nodes, of which one is drained or dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devtools.localkube.instance import Instance
from tests.faults.node import cut_power
from tests.faults.second_node import begin_on_two_nodes
from tests.faults.training import Training


@contextmanager
def drained(training: Training, node: Instance) -> Iterator[None]:
    """While inside, a node is cordoned, and its pods are evicted."""
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
    try:
        training.namespace.kubectl("drain", node.node_name, *options)
        yield
    finally:
        training.namespace.kubectl("uncordon", node.node_name)


@pytest.mark.rare
@pytest.mark.fault("node cordoned and drained")
def test_drained_node(training: Training, second_node: Instance) -> None:
    begin_on_two_nodes(training, second_node)
    fault = time.time()
    with drained(training, second_node):
        training.finish(fault)


@pytest.mark.rare
@pytest.mark.fault("node without power, with spares")
def test_dead_node_with_spares(training: Training, second_node: Instance) -> None:
    # Two of the four workers are on each node.
    begin_on_two_nodes(training, second_node, spares=2)
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
    begin_on_two_nodes(training, second_node, tolerations=[soon])
    fault = time.time()
    cut_power(second_node)
    training.finish(fault)
