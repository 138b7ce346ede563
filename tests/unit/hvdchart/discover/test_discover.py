"""The spec that discover writes for nodes as real clusters have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdchart.discover.nodes import read_nodes
from hvdchart.discover.spec_text import MIXED_GROUPS_NOTE, spec_text
from hvdchart.errors import ClusterError
from hvdchart.plan.planner import make_plan
from hvdchart.quantity import MI
from hvdchart.run.state.pod_requests import pod_requests
from hvdchart.spec.load import parse_spec
from hvdchart.spec.model import NodeGroup, Rdma, Spec
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.nodes import NFD, amd, dgx, discovered, mig, node, pod, xeon

Discovered = tuple[str, Spec]
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def of_dgx() -> Discovered:
    """The text and the spec of a cluster of DGX nodes, of which one is cordoned."""
    plane = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    nodes = [
        dgx("dgx-2"),
        dgx("dgx-1"),
        node("cp", "8", "32Gi", taints=[plane]),
        dgx("dgx-3", cordoned=True),
    ]
    daemons = [
        pod(f"dgx-{number}", {"cpu": "1", "memory": "1Gi"}, "DaemonSet") for number in (1, 2)
    ]
    return discovered(nodes, daemons)


@pytest.fixture(scope="module")
def of_many() -> Discovered:
    """The text and the spec of a cluster of different nodes."""
    return discovered(
        [
            dgx("g1"),
            xeon("x1"),
            xeon("x2", "394000Mi"),
            xeon("x3", "191000Mi"),
            amd("a1"),
            mig("m1"),
        ]
    )


def named_groups(discovered: Discovered) -> dict[str, NodeGroup]:
    """The groups of the spec by their names."""
    return {group.name: group for group in discovered[1].nodes}


def topology(name: str, zones: int) -> dict[str, Any]:
    """A NodeResourceTopology as node-feature-discovery's topology updater publishes it."""
    numa = [{"name": f"node-{zone}", "type": "Node", "resources": []} for zone in range(zones)]
    return {"metadata": {"name": name}, "zones": [*numa, {"name": "x", "type": "Core"}]}


def with_product(product: str, groups: int) -> Discovered:
    """The text and the spec of nodes with the same product, each a group of its own."""
    return discovered(
        [
            node(
                f"n{number}",
                "8",
                "32Gi",
                {"nvidia.com/gpu.product": product, "pool": f"p{number}"},
                devices={"nvidia.com/gpu": str(number + 1)},
            )
            for number in range(groups)
        ]
    )


@pytest.fixture
def two_nodes(fake_cluster: FakeCluster) -> FakeCluster:
    """A cluster of two nodes; the first has a label and a published topology."""
    fake_cluster.put("nodes", node("a", "8", "32Gi", {"pool": "x"}), node("b", "16", "32Gi"))
    fake_cluster.put("noderesourcetopologies", topology("a", 4))
    return fake_cluster


@pytest.fixture
def busy_node(fake_cluster: FakeCluster) -> FakeCluster:
    """A cluster of one node, most of which a pod has."""
    fake_cluster.put("nodes", node("a", "8", "32Gi"))
    fake_cluster.put("pods", pod("a", {"cpu": "7"}))
    return fake_cluster


def test_dgx_nodes_become_a_group(of_dgx: Discovered) -> None:
    text, spec = of_dgx
    (group,) = spec.nodes
    assert (group.name, group.count, group.gpus) == ("nvidia-a100-sxm4-80gb", 2, 8)
    assert (group.sockets, group.cores_per_socket, group.threads_per_core) == (2, 64, 2)
    (toleration,) = group.tolerations
    assert (toleration.taint, toleration.operator) == ("nvidia.com/gpu", "Exists")
    # One device of many.
    assert group.rdma == Rdma("rdma/hca_shared_devices_a", 1)
    assert " 63;" in text
    assert "80 GiB" in text
    assert "several NUMA nodes" in text
    assert MIXED_GROUPS_NOTE not in text


def test_label_that_is_on_other_nodes_too_does_not_select(of_dgx: Discovered) -> None:
    """It is on the cordoned node."""
    text, spec = of_dgx
    assert spec.nodes[0].node_selector == {}
    assert "add nodeSelector" in text


def test_reserve_has_the_kubelet_daemon_sets_and_the_master(of_dgx: Discovered) -> None:
    reserved = of_dgx[1].nodes[0].reserved
    # 500m of the kubelet, 1 of DaemonSets, 100m for the master.
    assert reserved.cpu == 1600
    # 3072 of the kubelet, 1024 of DaemonSets, 256 for the master, and what is no whole MiB.
    assert reserved.memory == 4353 * MI


def test_nodes_that_cannot_be_used_are_named_with_the_reason(of_dgx: Discovered) -> None:
    assert "excluded: node cp: control plane" in of_dgx[0]
    assert "excluded: node dgx-3: cordoned" in of_dgx[0]


def test_different_nodes_become_different_groups(of_many: Discovered) -> None:
    """The larger ones come first."""
    text, spec = of_many
    assert [(group.name, group.count) for group in spec.nodes] == [
        ("nvidia-a100-sxm4-80gb", 1),
        ("amd-instinct-mi300x-oam", 1),
        ("mig-1g-5gb", 1),
        ("cpu", 2),
        ("cpu-2", 1),
    ]
    groups = named_groups(of_many)
    of_amd = groups["amd-instinct-mi300x-oam"]
    assert (of_amd.gpu_resource, of_amd.threads_per_core) == ("amd.com/gpu", 1)
    slices = groups["mig-1g-5gb"]
    assert (slices.gpus, slices.gpu_resource) == (5, "nvidia.com/mig-1g.5gb")
    assert "not used: nvidia.com/mig-2g.10gb\n" in text
    assert f"# {MIXED_GROUPS_NOTE}\n" in text


def test_group_has_what_all_its_nodes_have(of_many: Discovered) -> None:
    """What only some of them have is reserved."""
    group = named_groups(of_many)["cpu"]
    assert (group.sockets, group.cores_per_socket) == (2, 28)
    assert group.memory == 394000 * MI
    assert group.reserved.memory == (836 + 256) * MI


@pytest.mark.parametrize(
    ("resource", "offered", "labels", "gpus", "says"),
    [
        ("gpu", 4, {"gpu.replicas": "1", "gpu.sharing-strategy": "none"}, 4, []),
        (
            "gpu",
            16,
            {"gpu.replicas": "4", "gpu.product": "Tesla-T4-SHARED"},
            4,
            ["16 shares of 4 GPUs", "shared GPUs: "],
        ),
        ("gpu.shared", 16, {"gpu.replicas": "8"}, 2, ["16 shares of 2 GPUs", "shared GPUs: "]),
        # The plugin refuses a worker with two shares.
        (
            "gpu",
            16,
            {"gpu.replicas": "4", "gpu.sharing-strategy": "mps"},
            1,
            ["16 shares of 4 GPUs"],
        ),
        ("mig-1g.5gb", 14, {"mig-1g.5gb.replicas": "2"}, 7, ["14 shares of 7", "MIG slices: "]),
        ("gpu", 7, {"gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"}, 7, ["MIG slices: "]),
        ("gpu", 1, {"gpu.product": "A100-SXM4-40GB-MIG-7g.40gb"}, 1, []),
    ],
)
def test_group_has_the_gpus_that_each_worker_may_get(
    resource: str, offered: int, labels: dict[str, str], gpus: int, says: list[str]
) -> None:
    known = {f"nvidia.com/{name}": text for name, text in labels.items()}
    devices = {f"nvidia.com/{resource}": str(offered)}
    text, spec = discovered([node("n", "64", "512Gi", known, devices=devices)])
    (group,) = spec.nodes
    assert (group.gpus, group.gpu_resource) == (gpus, f"nvidia.com/{resource}")
    comments = ["16 shares of 4 GPUs", "16 shares of 2 GPUs", "14 shares of 7"]
    comments += ["shared GPUs: ", "MIG slices: "]
    assert [comment for comment in comments if comment in text] == says


def test_group_is_selected_by_a_label_that_no_other_node_has(of_many: Discovered) -> None:
    groups = named_groups(of_many)
    assert groups["nvidia-a100-sxm4-80gb"].node_selector == {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"
    }
    # node-type is on both kinds of Xeon, and a single node has only its host name.
    assert groups["cpu"].node_selector == {}
    assert groups["cpu-2"].node_selector == {"kubernetes.io/hostname": "x3"}


@pytest.mark.parametrize(
    ("labels", "zones", "sockets", "numa"),
    [
        ({"cpu-topology.socket_count": "2"}, 8, 2, 4),
        ({"cpu-topology.socket_count": "2", "memory-numa.node_count": "4"}, 8, 2, 4),
        ({"cpu-topology.socket_count": "1"}, 16, 1, 16),
        ({"cpu-topology.socket_count": "1"}, 17, 1, None),
        ({"cpu-topology.socket_count": "0"}, None, 1, None),
        ({}, 4, 2, 2),
    ],
)
def test_numa_nodes_of_a_socket_are_read_from_topologies_or_a_label(
    labels: dict[str, str], zones: int | None, sockets: int, numa: int | None
) -> None:
    nodes = [node("n1", "128", "512Gi", {f"{NFD}{name}": text for name, text in labels.items()})]
    topologies = [] if zones is None else [topology("n1", zones), topology("other", 9)]
    text = spec_text(read_nodes(nodes, [], topologies), "run")
    spec = parse_spec(text)
    group = spec.nodes[0]
    assert (group.sockets, group.numa_per_socket) == (sockets, numa)
    assert (" NUMA nodes: " in text) == (numa is not None)
    assert make_plan(spec).groups[0].slots == sockets * (numa or 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ready": "False"}, "not ready: runtime is down"),
        ({"conditions": [{"type": "Ready", "status": "False", "reason": "NotYet"}]}, "NotYet"),
        ({"cordoned": True}, "cordoned"),
        (
            {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]},
            "tainted node.kubernetes.io/disk-pressure",
        ),
        ({"labels": {"kubernetes.io/os": "windows"}}, "runs windows, .*"),
        ({"labels": {"type": "virtual-kubelet"}}, "virtual"),
        ({"taints": [{"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"}]}, "virtual"),
        ({"labels": {"eks.amazonaws.com/compute-type": "fargate"}}, "virtual"),
        ({"devices": {"habana.ai/gaudi": "8"}}, "has habana.ai/gaudi, .*"),
        ({"devices": {"aws.amazon.com/neuroncore": "2"}}, "has aws.amazon.com/neuroncore, .*"),
        ({"cpus": "10k"}, "has 10000 cores .* 1024"),
    ],
)
def test_unusable_nodes_are_refused_with_their_reasons(change: dict[str, Any], reason: str) -> None:
    machine = node("n", change.get("cpus", "4"), "8Gi", **change)
    machine["status"]["conditions"] = change.get("conditions", machine["status"]["conditions"])
    with pytest.raises(ClusterError, match=f"(?s)node n: .*{reason}$"):
        discovered([machine])


@pytest.mark.parametrize(
    "other",
    [
        node("other", "10k", "4Ti", {"type": "virtual-kubelet"}),
        node("other", "10k", "4Ti"),
        node("other", "64", "256Gi", {"kubernetes.io/os": "windows"}),
        node("other", "160", "1Ti", devices={"habana.ai/gaudi": "8"}),
    ],
    ids=["virtual", "too large", "windows", "gaudi"],
)
def test_node_that_cannot_be_used_keeps_no_other_out(other: dict[str, Any]) -> None:
    """Nothing was written for a cluster with one virtual node, and ranks were put on Windows."""
    text, spec = discovered([node("real", "8", "32Gi"), other])
    assert [(group.count, group.cores_per_socket) for group in spec.nodes] == [(1, 8)]
    assert "excluded: node other: " in text


@pytest.mark.parametrize(
    ("product", "names"),
    [
        ("H100-SXM", ["h100-sxm"]),
        ("3090", ["n-3090"]),
        ("Master", ["master-2"]),
        ("N" * 40, ["n" * 27, f"{'n' * 27}-2"]),
    ],
)
def test_groups_are_named_after_their_product(product: str, names: list[str]) -> None:
    _, spec = with_product(product, len(names))
    assert [group.name for group in spec.nodes] == names


def test_groups_of_the_same_product_are_selected_by_their_own_labels() -> None:
    """The larger one comes first."""
    _, spec = with_product("H100-SXM", 2)
    assert [dict(group.node_selector) for group in spec.nodes] == [{"pool": "p1"}, {"pool": "p0"}]


SETUP: dict[str, Any] = {"resources": {"requests": {"cpu": "3"}}}
SMALLER: dict[str, Any] = {"resources": {"requests": {"cpu": "1"}}}
SIDECAR = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
OVERHEAD = {"cpu": "250m", "memory": "64Mi"}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        # A sidecar runs beside a later init container, and the largest of these counts.
        ({"initContainers": [SIDECAR, SETUP]}, {"cpu": 3500}),
        ({"initContainers": [SETUP, SMALLER]}, {"cpu": 3000}),
        ({"overhead": OVERHEAD}, {"cpu": 2250, "memory": 64 * MI}),
        # Limits are the requests where there are none.
        (
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
            {"nvidia.com/gpu": 2},
        ),
    ],
    ids=["sidecar", "init containers", "overhead", "limits"],
)
def test_requests_of_a_pod_are_those_that_the_scheduler_counts(
    spec: dict[str, Any], requests: dict[str, int]
) -> None:
    small = pod("n", {"cpu": "2"})
    assert pod_requests({**small, "spec": {**small["spec"], **spec}}) == requests


CHOSEN = ["discover", "-l", "pool=x", "--name", "mine"]


def test_discover_writes_a_spec_of_the_chosen_nodes(
    hvdchart: Command, two_nodes: FakeCluster
) -> None:
    done = hvdchart(*CHOSEN)
    assert (done.code, done.errors) == (0, "")
    for line in ("name: mine", "pool: x", "coresPerSocket: 4", "numaPerSocket: 2"):
        assert line in done.output


def test_discover_writes_the_same_spec_to_a_file(
    hvdchart: Command, two_nodes: FakeCluster, tmp_path: Path
) -> None:
    target = tmp_path / "out.yaml"
    assert hvdchart(*CHOSEN, "-w", target).output == ""
    assert target.read_text() == hvdchart(*CHOSEN).output


def test_discover_needs_no_published_topology(hvdchart: Command, two_nodes: FakeCluster) -> None:
    two_nodes.refusals["noderesourcetopologies list"] = (404, "not here")
    done = hvdchart("discover")
    assert done.code == 0
    assert "numaPerSocket" not in done.output


def test_discover_continues_without_the_right_to_read_pods(
    hvdchart: Command, busy_node: FakeCluster
) -> None:
    busy_node.refusals["pods list"] = (403, "forbidden")
    done = hvdchart("discover")
    assert done.code == 0
    assert "(forbidden)" in done.errors
    assert "DaemonSets" in done.output
    # Each key has a line, with its comment: not all programs read a comment inside of {}.
    assert [line.split()[0] for line in done.output.splitlines() if "coresPerSocket" in line] == [
        "coresPerSocket:"
    ]


def test_sockets_that_do_not_divide_the_cores_are_named() -> None:
    node = xeon("x1")
    node["metadata"]["labels"][f"{NFD}cpu-topology.socket_count"] = "3"
    text, spec = discovered([node])
    assert spec.nodes[0].sockets == 1
    (line,) = (line for line in text.splitlines() if "sockets:" in line)
    assert "3 sockets" in line


def test_what_a_node_says_of_itself_stays_a_comment() -> None:
    """The spec is written to a file that a person deploys."""
    evil = xeon("x2", ready="False")
    message = "runtime is down\nimage: {repository: evil}\n\x1b[2J"
    evil["status"]["conditions"][1]["message"] = message
    text, spec = discovered([xeon("x1"), evil])
    assert spec.values == {}
    assert "\n# excluded: node x2: not ready: runtime is down image: {repository" in text
    assert "\x1b" not in text
