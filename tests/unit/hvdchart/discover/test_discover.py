"""The spec that discover writes for nodes as real clusters have them, and the ranks that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdchart.discover.nodes import pod_requests, read_nodes
from hvdchart.discover.spec_text import spec_text
from hvdchart.errors import ClusterError
from hvdchart.plan.planner import make_plan
from hvdchart.quantity import MI
from hvdchart.spec.load import parse_spec
from hvdchart.spec.model import Rdma
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.nodes import NFD, amd, dgx, discovered, mig, node, pod, xeon


def test_dgx_nodes_become_a_group_with_gpus_rdma_and_tolerations() -> None:
    plane = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    nodes = [
        dgx("dgx-2"),
        dgx("dgx-1"),
        node("cp", "8", "32Gi", taints=[plane]),
        dgx("dgx-3", cordoned=True),
    ]
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
    nodes = [
        dgx("g1"),
        xeon("x1"),
        xeon("x2", "394000Mi"),
        xeon("x3", "191000Mi"),
        amd("a1"),
        mig("m1"),
    ]
    text, spec = discovered(nodes)
    groups = {group.name: group for group in spec.nodes}
    assert [(name, group.count) for name, group in groups.items()] == [
        ("nvidia-a100-sxm4-80gb", 1),
        ("amd-instinct-mi300x-oam", 1),
        ("mig-1g-5gb", 1),
        ("cpu", 2),
        ("cpu-2", 1),
    ], "the larger ones first"
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


def topology(name: str, zones: int) -> dict[str, Any]:
    """A NodeResourceTopology as node-feature-discovery's topology updater publishes it."""
    numa = [{"name": f"node-{n}", "type": "Node", "resources": []} for n in range(zones)]
    return {"metadata": {"name": name}, "zones": [*numa, {"name": "x", "type": "Core"}]}


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
    assert ("NUMA nodes: one rank each" in text) == (numa is not None)
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
    ],
)
def test_unusable_nodes_are_refused_with_their_reasons(change: dict[str, Any], reason: str) -> None:
    machine = node("n", "4", "8Gi", **change)
    machine["status"]["conditions"] = change.get("conditions", machine["status"]["conditions"])
    with pytest.raises(ClusterError, match=f"(?s)no node can be used.*{reason}$"):
        discovered([machine])


def test_groups_are_named_after_their_product_and_their_own_labels() -> None:
    for product, names in (
        ("H100-SXM", ["h100-sxm"]),
        ("3090", ["n-3090"]),
        ("Master", ["master-2"]),
        ("N" * 40, ["n" * 27, f"{'n' * 27}-2"]),
    ):
        nodes = [
            node(
                f"n{n}",
                "8",
                "32Gi",
                {"nvidia.com/gpu.product": product, "pool": f"p{n}"},
                devices={"nvidia.com/gpu": str(n + 1)},
            )
            for n in range(len(names))
        ]
        assert [group.name for group in discovered(nodes)[1].nodes] == names
    selectors = [dict(group.node_selector) for group in discovered(nodes)[1].nodes]
    assert selectors == [{"pool": "p1"}, {"pool": "p0"}], "the larger one first"


def test_pod_requests_are_those_of_the_scheduler() -> None:
    setup = {"resources": {"requests": {"cpu": "3"}}}
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    assert pod_requests(pod("n", {"cpu": "2"}, init=[sidecar, setup])) == {"cpu": 3500}
    smaller = {"resources": {"requests": {"cpu": "1"}}}
    assert pod_requests(pod("n", {"cpu": "2"}, init=[setup, smaller])) == {"cpu": 3000}
    limits_only = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
    assert pod_requests(limits_only) == {"nvidia.com/gpu": 2}
    sandboxed = pod("n", {"cpu": "2"})
    sandboxed["spec"]["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    assert pod_requests(sandboxed) == {"cpu": 2250, "memory": 64 * MI}


def test_fit_uses_free_nodes_only_and_keeps_some_as_spares() -> None:
    nodes = [*(dgx(f"d{n}") for n in range(4)), xeon("x1")]
    busy = [pod("d0", {"nvidia.com/gpu": "4"}), pod("d3", {"nvidia.com/gpu": "8"}, phase="Failed")]
    text, spec = discovered(nodes, busy, fit=16, spares=1)
    assert [(group.name, group.count, group.spares) for group in spec.nodes] == [
        ("nvidia-a100-sxm4-80gb", 2, 1)
    ]
    assert make_plan(spec).ranks == 16
    assert "3 of 4 nodes of the group are free now" in text
    assert "3 of 4 nodes are free, 16 ranks and 1 spare (d0: 4 nvidia.com/gpu free, 8 n" in text
    _, spec = discovered(nodes, spares=1)
    assert [(group.count, group.spares) for group in spec.nodes] == [(3, 1), (1, 0)]
    with pytest.raises(ClusterError, match=r"no group has more nodes than the 4 spares to keep"):
        discovered(nodes, spares=4)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (32, "32 ranks do not fit now: there is room for 24 in a group of equal nodes"),
        (12, "12 ranks do not fit: each node runs 8 ranks"),
    ],
)
def test_ranks_that_do_not_fit_are_refused_with_the_reasons(ranks: int, message: str) -> None:
    busy = [pod("d0", {"cpu": "200"})]
    with pytest.raises(ClusterError) as refused:
        discovered([dgx(f"d{n}") for n in range(4)], busy, fit=ranks)
    assert message in str(refused.value)
    assert "d0: 55500m cpu free, 255 needed" in str(refused.value)


def test_fit_prefers_gpus_and_the_larger_nodes() -> None:
    small = [node(f"s{n}", "8", "32Gi", devices={"nvidia.com/gpu": "4"}) for n in (1, 2)]
    nodes = [*small, amd("a1"), *(xeon(f"x{n}") for n in range(5))]
    for ranks, counts in ((8, {8: 1}), (4, {4: 1}), (10, {0: 5})):
        _, spec = discovered(nodes, fit=ranks)
        assert {group.gpus: group.count for group in spec.nodes} == counts


pytestmark = pytest.mark.timeout(120)


def test_discover_writes_a_spec_to_stdout_or_a_file(
    hvdchart: Command, fake_cluster: FakeCluster, tmp_path: Path
) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi", {"pool": "x"}), node("b", "16", "32Gi"))
    fake_cluster.put("noderesourcetopologies", topology("a", 4))
    done = hvdchart("discover", "-l", "pool=x", "--name", "mine")
    assert (done.code, done.errors) == (0, "")
    assert "name: mine" in done.output
    assert "pool: x" in done.output
    assert "coresPerSocket: 4" in done.output
    assert "numaPerSocket: 2" in done.output
    target = tmp_path / "out.yaml"
    assert hvdchart("discover", "-l", "pool=x", "--name", "mine", "-w", target).output == ""
    assert target.read_text() == done.output
    # Where no NUMA nodes are published.
    fake_cluster.refusals["noderesourcetopologies list"] = (404, "not here")
    done = hvdchart("discover")
    assert (done.code, "numaPerSocket" in done.output) == (0, False)


def test_discover_needs_the_pods_for_fit_only(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi"))
    fake_cluster.put("pods", pod("a", {"cpu": "7"}))
    assert hvdchart("discover", "--fit", "1").code == 7
    fake_cluster.refusals["pods list"] = (403, "forbidden")
    done = hvdchart("discover")
    assert done.code == 0
    assert "you are not allowed to (forbidden)" in done.errors
    assert done.errors.endswith("; continuing without the pods\n")
    assert "requests of DaemonSets are estimated" in done.output
    refused = hvdchart("discover", "--fit", "1")
    assert (refused.code, refused.output) == (7, "")


def test_what_a_node_says_of_itself_stays_a_comment() -> None:
    """The spec is written to a file that a person deploys."""
    evil = xeon("x2", ready="False")
    message = "runtime is down\nimage: {repository: evil}\n\x1b[2J"
    evil["status"]["conditions"][1]["message"] = message
    text, spec = discovered([xeon("x1"), evil])
    assert spec.values == {}
    assert "\n# excluded: node x2: not ready: runtime is down image: {repository" in text
    assert "\x1b" not in text
