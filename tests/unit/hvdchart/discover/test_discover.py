"""The spec that discover writes for nodes as real clusters have them."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.discover.nodes import pod_requests, read_nodes
from hvdchart.discover.spec_text import spec_text
from hvdchart.errors import ClusterError
from hvdchart.plan.planner import make_plan
from hvdchart.quantity import MI
from hvdchart.spec.load import parse_spec
from hvdchart.spec.model import Rdma, Reserved, Toleration
from tests.unit.hvdchart.nodes import NFD, amd, dgx, discovered, mig, node, pod, xeon


def test_dgx_nodes_become_a_group_with_gpus_rdma_and_tolerations() -> None:
    plane = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    nodes = [dgx("dgx-2"), dgx("dgx-1"), node("cp", "8", "32Gi", taints=[plane]),
             dgx("dgx-3", cordoned=True)]  # fmt: skip
    daemons = [pod(f"dgx-{n}", {"cpu": "1", "memory": "1Gi"}, "DaemonSet") for n in (1, 2)]
    text, spec = discovered(nodes, daemons)
    (group,) = spec.nodes
    assert (group.name, group.count, group.gpus) == ("nvidia-a100-sxm4-80gb", 2, 8)
    assert (group.sockets, group.cores_per_socket, group.threads_per_core) == (2, 64, 2)
    assert group.node_selector == {}, "the label is on the cordoned node too"
    assert "no label is unique to these nodes" in text
    assert group.tolerations[0].taint == "nvidia.com/gpu"
    assert group.tolerations[0].operator == "Exists"
    assert group.rdma == Rdma("rdma/hca_shared_devices_a", 1)
    assert "the node offers 63;" in text
    # 500m of the kubelet, 1 of DaemonSets, 100m for the master.
    assert group.reserved.cpu == 1600
    # 3072 of the kubelet, 1024 of DaemonSets, 256 for the master, and what is no whole MiB.
    assert group.reserved.memory == 4353 * MI
    assert "GPU and CPU nodes" not in text
    assert "excluded: node cp: control plane" in text
    assert "excluded: node dgx-3: cordoned" in text
    assert "80 GiB each" in text
    assert "several NUMA nodes" in text


def test_different_nodes_become_different_groups() -> None:
    nodes = [dgx("g1"), xeon("x1"), xeon("x2", "394000Mi"), xeon("x3", "191000Mi"), amd("a1"),
             mig("m1")]  # fmt: skip
    text, spec = discovered(nodes)
    groups = {group.name: group for group in spec.nodes}
    assert [(name, group.count) for name, group in groups.items()] == [
        ("nvidia-a100-sxm4-80gb", 1), ("amd-instinct-mi300x-oam", 1), ("mig-1g-5gb", 1),
        ("cpu", 2), ("cpu-2", 1),
    ], "the larger ones first"  # fmt: skip
    assert groups["cpu"].memory == 394000 * MI, "what every node of the group has"
    assert groups["cpu"].reserved.memory == (836 + 256) * MI, "what only some have"
    assert (groups["cpu"].sockets, groups["cpu"].cores_per_socket) == (2, 28)
    assert groups["amd-instinct-mi300x-oam"].gpu_resource == "amd.com/gpu"
    assert groups["amd-instinct-mi300x-oam"].threads_per_core == 1
    slices = groups["mig-1g-5gb"]
    assert (slices.gpus, slices.gpu_resource) == (5, "nvidia.com/mig-1g.5gb")
    assert "not used: nvidia.com/mig-2g.10gb\n" in text
    assert groups["nvidia-a100-sxm4-80gb"].node_selector == {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"
    }
    # node-type is on both kinds of Xeon, and a single node has only its host name.
    assert groups["cpu"].node_selector == {}
    assert groups["cpu-2"].node_selector == {"kubernetes.io/hostname": "x3"}
    assert "GPU and CPU nodes" in text


def test_unknown_facts_are_marked_by_comments() -> None:
    text, spec = discovered([node("vm", "8", "32Gi")])
    group = spec.nodes[0]
    assert (group.sockets, group.cores_per_socket, group.threads_per_core) == (1, 8, 1)
    lines = text.splitlines()
    assert any("sockets: 1" in line and "not known" in line for line in lines)
    assert any("threadsPerCore: 1" in line and "not known" in line for line in lines)


def topology(name: str, zones: int) -> dict[str, Any]:
    """A NodeResourceTopology as node-feature-discovery's topology updater publishes it."""
    numa = [{"name": f"node-{n}", "type": "Node", "resources": []} for n in range(zones)]
    return {"metadata": {"name": name}, "zones": [*numa, {"name": "x", "type": "Core"}]}


@pytest.mark.parametrize(
    ("labels", "zones", "sockets", "numa"),
    [
        ({"cpu-topology.socket_count": "2"}, 8, 2, 4),
        ({"cpu-topology.socket_count": "2", "memory-numa.node_count": "4"}, None, 2, 2),
        ({"cpu-topology.socket_count": "2", "memory-numa.node_count": "4"}, 8, 2, 4),
        ({"cpu-topology.socket_count": "2"}, 2, 2, None),
        ({"cpu-topology.socket_count": "2"}, 3, 2, None),
        ({"cpu-topology.socket_count": "1"}, 4, 1, 4),
        ({"cpu-topology.socket_count": "1"}, 16, 1, 16),
        ({"cpu-topology.socket_count": "1"}, 17, 1, None),
        ({"cpu-topology.socket_count": "64"}, 128, 64, 2),
        ({"cpu-topology.socket_count": "64"}, 192, 64, None),
        ({"cpu-topology.socket_count": "0"}, None, 1, None),
        ({}, 1, 1, None),
        ({}, 2, 2, None),
        ({}, 4, 2, 2),
        ({}, None, 1, None),
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
    assert ("NUMA nodes: one rank each" in text) == (numa is not None)
    assert make_plan(spec).groups[0].slots == sockets * (numa or 1)


def test_gpu_nodes_have_a_rank_for_each_gpu_and_none_for_numa_nodes() -> None:
    text = spec_text(read_nodes([dgx("d1")], [], [topology("d1", 8)]), "run")
    assert "numaPerSocket" not in text
    assert parse_spec(text).nodes[0].sockets == 2


def test_selector_becomes_the_node_selector() -> None:
    _, spec = discovered([xeon("x1"), xeon("x2")], selector="node-type==highmem,a!=b,c")
    assert spec.nodes[0].node_selector == {"node-type": "highmem"}


def test_reserve_is_omitted_without_the_pods() -> None:
    text, spec = discovered([xeon("x1")], pods_known=False)
    assert spec.nodes[0].reserved.cpu is None
    assert "requests of DaemonSets are estimated" in text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ready": "False"}, "not ready: runtime is down"),
        ({"conditions": [{"type": "Ready", "status": "False", "reason": "NotYet"}]}, "NotYet"),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, "not ready: False"),
        ({"conditions": []}, "not ready: Unknown"),
        ({"cordoned": True}, "cordoned"),
        ({"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]},
         "tainted node.kubernetes.io/disk-pressure"),
    ],
)  # fmt: skip
def test_unusable_nodes_are_refused_with_their_reasons(change: dict[str, Any], reason: str) -> None:
    machine = node("n", "4", "8Gi", **change)
    if "conditions" in change:
        machine["status"]["conditions"] = change["conditions"]
    with pytest.raises(ClusterError, match="no node can be used") as refused:
        discovered([machine])
    assert str(refused.value).endswith(reason)


@pytest.mark.parametrize(
    ("labels", "threads"),
    [
        ({}, None),
        ({f"{NFD}cpu-hardware_multithreading": "true"}, 2),
        ({f"{NFD}cpu-hardware_multithreading": "false"}, 1),
        ({"kubernetes.io/arch": "arm64"}, 1),
    ],
)
def test_threads_of_a_core_are_known_from_labels(
    labels: dict[str, str], threads: int | None
) -> None:
    assert read_nodes([node("n", "4", "8Gi", labels)], [])[0].threads_per_core == threads


@pytest.mark.parametrize(
    ("cpu", "labels", "sockets", "cores"),
    [
        ("7", {f"{NFD}cpu-topology.socket_count": "2"}, 1, 7),
        ("1", {f"{NFD}cpu-hardware_multithreading": "true"}, 1, 1),
    ],
)
def test_cores_that_sockets_cannot_share_are_of_one(
    cpu: str, labels: dict[str, str], sockets: int, cores: int
) -> None:
    group = discovered([node("n", cpu, "8Gi", labels)])[1].nodes[0]
    assert (group.sockets, group.cores_per_socket) == (sockets, cores)


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
    labels = {"nvidia.com/gpu.product": product}
    nodes = [
        node(f"n{n}", "8", "32Gi", labels, devices={"nvidia.com/gpu": str(n + 1)})
        for n in range(len(names))
    ]
    assert [group.name for group in discovered(nodes)[1].nodes] == names


def test_label_of_the_users_own_selects_a_group() -> None:
    """And no label that changes over time."""
    nodes = [
        node(name, cpu, "32Gi", {"pool": name, "example.com/timestamp": cpu})
        for name, cpu in (("large", "16"), ("small", "8"))
    ]
    _, spec = discovered(nodes)
    assert [dict(group.node_selector) for group in spec.nodes] == [
        {"pool": "large"}, {"pool": "small"},
    ]  # fmt: skip


def test_taint_with_a_value_is_tolerated_with_that_value() -> None:
    taint = {"key": "team", "value": "vision", "effect": "NoExecute"}
    group = discovered([xeon("x1", taints=[taint])])[1].nodes[0]
    expected = Toleration(taint="team", operator="Equal", value="vision", effect="NoExecute")
    assert group.tolerations == (expected,)


# The last one has 3 % less than the first one.
@pytest.mark.parametrize(("memory", "groups"), [("97Mi", 1), ("96Mi", 2)])
def test_nodes_of_nearly_the_same_memory_are_equal(memory: str, groups: int) -> None:
    nodes = [node("a", "4", "100Mi"), node("b", "4", memory)]
    assert len(discovered(nodes, pods_known=False)[1].nodes) == groups


def test_pod_requests_are_those_of_the_scheduler() -> None:
    setup = {"resources": {"requests": {"cpu": "3"}}}
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    requests = pod_requests(pod("n", {"cpu": "2"}, init=[sidecar, setup]))
    assert requests == {"cpu": 3500}
    smaller = {"resources": {"requests": {"cpu": "1"}}}
    assert pod_requests(pod("n", {"cpu": "2"}, init=[setup, smaller])) == {"cpu": 3000}
    none = {"resources": {"requests": {"cpu": "0"}}}
    assert pod_requests(pod("n", {"cpu": "0"}, init=[none])) == {"cpu": 0}
    limits_only = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
    assert pod_requests(limits_only) == {"nvidia.com/gpu": 2}


def test_a_request_for_none_of_a_device_is_none() -> None:
    without = pod("n", {"cpu": "2", "nvidia.com/gpu": "0"}, init=[{}])
    assert pod_requests(without) == {"cpu": 2000, "nvidia.com/gpu": 0}


def test_comments_on_gpus_show_what_limits_them() -> None:
    shared = dgx("g1")
    shared["metadata"]["labels"] |= {
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.memory": "8000",
    }
    text, _ = discovered([shared])
    assert "NVIDIA-A100-SXM4-80GB; 7 GiB each; time-sliced: 4 shares of one GPU" in text
    plain = node("p", "8", "32Gi", devices={"nvidia.com/gpu": "1"})
    assert "# one rank each" in discovered([plain])[0]
    assert "MIG slices: NCCL does not connect" in discovered([mig("m")])[0]
    full, _ = discovered([dgx("g1")])
    assert "time-sliced" not in full
    assert "MIG slices" not in full


def test_reserve_without_daemons_is_the_kubelets_and_the_masters() -> None:
    text, spec = discovered([xeon("x1", allocatable=("111", "394836Mi"))])
    assert spec.nodes[0].reserved == Reserved(cpu=1100, memory=256 * MI)
    assert "kubelet 1, DaemonSets 0, master 100m" in text


@pytest.mark.parametrize(
    ("cpu", "memory", "room"),
    [("100m", "8Gi", False), ("101m", "8Gi", True), ("1", "256Mi", False), ("1", "257Mi", True)],
)
def test_node_without_room_for_a_worker_has_a_comment(cpu: str, memory: str, room: bool) -> None:
    # The master requests 100m of the only CPU and 256Mi, and the kubelet reserves the rest.
    text, _ = discovered([node("n", "1", "8Gi", allocatable=(cpu, memory))])
    assert ("leave nothing for workers" in text) is not room


def test_pod_requests_include_the_overhead_of_its_runtime() -> None:
    sandboxed = pod("n", {"cpu": "2"})
    sandboxed["spec"]["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    assert pod_requests(sandboxed) == {"cpu": 2250, "memory": 64 * MI}


@pytest.mark.parametrize(("replicas", "is_shared"), [("1", False), ("2", True)])
def test_time_slicing_is_told_from_whole_gpus(replicas: str, is_shared: bool) -> None:
    labels = {"nvidia.com/gpu.product": "T4", "nvidia.com/gpu.replicas": replicas}
    shared = node("s", "8", "32Gi", labels, devices={"nvidia.com/gpu": replicas})
    text, _ = discovered([shared])
    assert ("time-sliced" in text) is is_shared


def test_spec_says_that_it_lacks_an_image() -> None:
    text, spec = discovered([xeon("x1")])
    assert "# not in the API: the image, which a run needs (image: {repository: ..., tag:" in text
    assert spec.image is None
