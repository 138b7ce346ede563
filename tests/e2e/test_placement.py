"""Where the scheduler puts the pods of a release, on a real cluster of one node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.localkube.processes import has_pod_groups
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.values.check_values import checked_values
from tests.support.namespace import (
    Namespace,
    Values,
    node_without_kubelet,
    remove_from_nodes_without_kubelet,
)

ARGS = ["python3", "-c", "print('trained')"]


def test_required_spread_waits_on_one_node_and_shows_the_schedulers_reason(
    namespace: Namespace,
) -> None:
    values: Values = {
        "worker": {"number": 2, "spread": "Required"},
        "master": {"args": ARGS, "backoffLimit": 0},
    }
    namespace.install("hvd", values)
    # The first worker answers.
    namespace.wait_for_line("waiting for 1 of 2 workers: ", "didn't match pod anti-affinity rules")


# Two sockets of 28 cores, whose kubelet reserves two cores (reservedSystemCPUs) and 15 GiB.
STATIC_SPEC = """
apiVersion: hvdchart/v1
name: hvd
image: {repository: never-pulled}
nodes:
  - name: xeon
    count: 1
    sockets: 2
    coresPerSocket: 28
    threadsPerCore: 2
    memory: 384Gi
    cpuManager: static
    reserved: {cpu: 4}
    nodeSelector: {hvd-test: static}
    tolerations: [{key: hvd-test, operator: Exists}]
train: {command: [python3, -V]}
"""


@pytest.fixture
def static_node(namespace: Namespace) -> Iterator[str]:
    """A node of that kind without a kubelet: pods are scheduled to it and never run."""
    # A name of its own: the node controller remembers when it last heard of a node that is gone.
    name = f"static-{namespace.name[-8:]}"
    capacity = {"cpu": "112", "memory": "376Gi", "pods": "110"}
    free = {"cpu": "108", "memory": "361Gi", "pods": "110"}
    with node_without_kubelet(namespace, name, {"hvd-test": "static"}, capacity, free):
        yield name
        remove_from_nodes_without_kubelet(namespace, "hvd")


def daemon(cpu: str) -> dict[str, Any]:
    """A pod as a node's DaemonSets have them."""
    requests = {"cpu": cpu, "memory": "512Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "daemon"},
        "spec": {
            "containers": [{"name": "x", "image": "x", "resources": {"requests": requests}}],
            "nodeSelector": {"hvd-test": "static"},
            "tolerations": [{"operator": "Exists"}],
        },
    }


@pytest.mark.usefixtures("privileged")
def test_worker_with_exclusive_cores_leaves_room_for_master_and_daemons(
    namespace: Namespace, static_node: str
) -> None:
    namespace.apply(daemon("500m"))
    namespace.install("hvd", checked_values(make_plan(parse_spec(STATIC_SPEC))))
    pods: list[dict[str, Any]] = []

    def have_nodes() -> bool:
        pods[:] = namespace.get("pods")["items"]
        return [pod["spec"].get("nodeName") for pod in pods] == [static_node] * 3

    wait_until(have_nodes, 90, "all three pods have the node", PROGRAM_PAUSE)
    worker = next(pod for pod in pods if "worker" in pod["metadata"]["name"])
    # With the static CPU manager, only this class gets cores of its own.
    assert worker["status"]["qosClass"] == "Guaranteed"


needs_pod_groups = pytest.mark.skipif(
    not has_pod_groups(), reason="the cluster has no PodGroups of Kubernetes' own"
)
GANG: Values = {"gang": "Kubernetes", "master": {"args": ARGS}}


@needs_pod_groups
def test_gang_of_the_clusters_own_scheduler_trains(namespace: Namespace) -> None:
    namespace.train("hvd", GANG)


@pytest.fixture
def nodes(namespace: Namespace) -> Iterator[str]:
    """The label of two nodes without a kubelet: one has room for two pods, one for three."""
    suffix = namespace.name[-8:]
    nodes = {f"{name}-{suffix}": pods for name, pods in (("small", 2), ("large", 3))}
    with ExitStack() as stack:
        for name, pods in nodes.items():
            room = {"cpu": "8", "memory": "64Gi", "pods": str(pods)}
            labels = {"hvd-test": suffix}
            stack.enter_context(node_without_kubelet(namespace, name, labels, room, room))
        yield suffix
        remove_from_nodes_without_kubelet(namespace, "hvd")


def on_nodes(label: str, number: int) -> Values:
    """A gang of a master and so many workers, on these nodes alone."""
    place = {
        "nodeSelector": {"hvd-test": label},
        "tolerations": [{"key": "hvd-test", "operator": "Exists"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "gang": "Kubernetes",
        "worker": {"number": number, "spread": "None", **place},
        "master": {"args": ARGS, **place},
    }


def nodes_of_pods(namespace: Namespace) -> list[str]:
    """The node of each pod; empty for one without."""
    return [pod["spec"].get("nodeName", "") for pod in namespace.get("pods")["items"]]


def refused_by_the_scheduler(namespace: Namespace) -> bool:
    """Whether the scheduler has looked at the pods, and found no room."""
    conditions = [
        condition
        for pod in namespace.get("pods")["items"]
        for condition in pod.get("status", {}).get("conditions", [])
    ]
    return any(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for condition in conditions
    )


@needs_pod_groups
@pytest.mark.usefixtures("privileged")
def test_gang_without_room_for_all_of_its_pods_takes_no_node(
    namespace: Namespace, nodes: str
) -> None:
    # Six pods, and room for five.
    namespace.install("hvd", on_nodes(nodes, 5))
    wait_until(lambda: refused_by_the_scheduler(namespace), 60, "the scheduler looks at the gang")
    assert set(nodes_of_pods(namespace)) == {""}
