"""The planned numbers, for nodes whose right numbers are known."""

from __future__ import annotations

import pytest

from hvdchart.plan.binding import Binding
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec


def planned(nodes: str, rest: str = "") -> Plan:
    text = f"apiVersion: hvdchart/v1\nname: run\nnodes: [{nodes}]\ntrain: {{command: [a]}}\n{rest}"
    return make_plan(parse_spec(text.encode()))


def test_xeon_8180_node_has_the_published_threads() -> None:
    """A Xeon 8180 node, 2 x 28 cores: 28 / 26 / 2, one rank a socket, bound to it."""
    node = "{name: x, count: 16, sockets: 2, coresPerSocket: 28, threadsPerCore: 2, memory: 384Gi}"
    plan = planned(node)
    group = plan.groups[0]
    assert (plan.ranks, group.slots) == (32, 2)
    assert dict(group.env) == {
        "OMP_NUM_THREADS": "28",
        "TF_NUM_INTRAOP_THREADS": "26",
        "TF_NUM_INTEROP_THREADS": "2",
        "TF_ENABLE_ONEDNN_OPTS": "1",
    }
    assert plan.launching.binding == Binding("core", 28)
    assert plan.launching.options == ()
    # 112 CPUs as Kubernetes counts; GKE's table keeps 345m, daemons and master 600m.
    assert group.requests["cpu"] == "111"
    # 384Gi of modules are 372.5Gi to the kernel; GKE's table keeps 14.3Gi, pods 768Mi.
    assert group.requests["memory"] == group.limits["memory"] == "357Gi"
    assert "cpu" not in group.limits


def test_given_reserve_replaces_the_table() -> None:
    group = planned(
        "{name: x, count: 1, coresPerSocket: 8, memory: 64Gi, reserved: {cpu: 2500m, memory: 4Gi}}"
    ).groups[0]
    assert (group.requests["cpu"], group.requests["memory"]) == ("5", "60Gi")


def test_small_nodes_have_at_least_one_thread() -> None:
    for cores in (1, 2, 3, 4):
        group = planned(f"{{name: x, count: 1, coresPerSocket: {cores}}}").groups[0]
        assert int(group.env["OMP_NUM_THREADS"]) == cores
        assert int(group.env["TF_NUM_INTRAOP_THREADS"]) == {1: 1, 2: 2, 3: 3, 4: 3}[cores]
        assert int(group.env["TF_NUM_INTEROP_THREADS"]) == min(cores, 2)
        assert group.requests["cpu"] not in ("0", "0m")


def test_shared_machines_are_not_bound_and_request_half() -> None:
    plan = planned("{name: x, count: 2, shared: true, coresPerSocket: 2, memory: 4Gi}")
    assert plan.launching.binding == Binding("none")
    assert plan.groups[0].requests == {"cpu": "1", "memory": "4Gi"}


def test_gpu_node_has_one_rank_per_gpu() -> None:
    group = planned("{name: dgx, count: 4, gpus: 4}").groups[0]
    assert (group.slots, dict(group.limits), dict(group.env)) == (4, {"nvidia.com/gpu": "4"}, {})


def test_group_tuning_wins_over_spec_tuning_over_the_rule() -> None:
    group = planned(
        "{name: x, count: 1, sockets: 2, coresPerSocket: 8, tuning: {ompThreads: 5}}",
        "tuning: {ompThreads: 6, interOpThreads: 1, kmpBlocktime: 0}",
    ).groups[0]
    assert group.env["OMP_NUM_THREADS"] == "5"
    assert group.env["TF_NUM_INTEROP_THREADS"] == "1"
    assert group.env["KMP_BLOCKTIME"] == "0"
    assert "instead of 8" in group.reasons["env.OMP_NUM_THREADS"].because


def test_onednn_is_on_for_cpu_ranks_unless_tuned_off() -> None:
    groups = planned(
        "{name: xeon, count: 1, coresPerSocket: 8},"
        "{name: exact, count: 1, coresPerSocket: 8, tuning: {oneDnn: false}},"
        "{name: gpu, count: 1, coresPerSocket: 8, gpus: 1}",
    ).groups
    assert [group.env.get("TF_ENABLE_ONEDNN_OPTS") for group in groups] == ["1", "0", None]
    assert groups[1].reasons["env.TF_ENABLE_ONEDNN_OPTS"].because.startswith("nodes[1].tuning.oneD")


def test_bfloat16_is_off_by_default_and_per_group() -> None:
    groups = planned(
        "{name: new, count: 1, coresPerSocket: 8},"
        "{name: old, count: 1, coresPerSocket: 8, tuning: {bfloat16: false}}",
        "tuning: {bfloat16: true}",
    ).groups
    assert groups[0].env["TF_SET_ONEDNN_FPMATH_MODE"] == "BF16"
    assert groups[0].reasons["env.TF_SET_ONEDNN_FPMATH_MODE"].because == "tuning.bfloat16"
    assert "TF_SET_ONEDNN_FPMATH_MODE" not in groups[1].env
    assert "env.TF_SET_ONEDNN_FPMATH_MODE" not in groups[1].reasons


# Seen with Open MPI 4.1.4 on synthetic topologies (HWLOC_SYNTHETIC): docs/planning.md.
@pytest.mark.parametrize(
    ("nodes", "binding"),
    [
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 28, tuning: {slots: 4}}",
         Binding("core", 14)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 7, tuning: {slots: 4}}",
         Binding("core", 3, 2)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 8, tuning: {slots: 3}}",
         Binding("core", 5)),
        ("{name: x, count: 1, coresPerSocket: 7, tuning: {slots: 2}}", Binding("core", 3)),
        # The kubelet's cores and those for pods are of the first socket: each socket is named.
        ("{name: x, count: 1, sockets: 4, coresPerSocket: 24, memory: 8Gi, cpuManager: static, "
         "reserved: {cpu: 5}}", Binding("core", 18, 1)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 28, memory: 8Gi, cpuManager: static, "
         "reserved: {cpu: 1}, tuning: {slots: 4}}", Binding("core", 13, 2)),
        ("{name: x, count: 1, coresPerSocket: 28, memory: 8Gi, cpuManager: static, "
         "reserved: {cpu: 1}, tuning: {slots: 2}}", Binding("core", 13)),
        # The first socket has just a core for its rank.
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 3, memory: 8Gi, cpuManager: static, "
         "reserved: {cpu: 1}}", Binding("core", 1, 1)),
        # The first socket has no core left for a rank: some rank spans sockets.
        ("{name: x, count: 1, sockets: 8, coresPerSocket: 2, memory: 8Gi, cpuManager: static, "
         "reserved: {cpu: 1}, tuning: {slots: 8}}", Binding("core", 1)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 64, numaPerSocket: 4}",
         Binding("core", 16)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 8, tuning: {binding: socket}}",
         Binding("socket", None, 1)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 8},"
         "{name: y, count: 1, sockets: 1, coresPerSocket: 16}", Binding("socket", None, 1)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 8},"
         "{name: y, count: 1, sockets: 1, coresPerSocket: 16, tuning: {slots: 3}}",
         Binding("none")),
        ("{name: x, count: 1, gpus: 2}, {name: y, count: 1, coresPerSocket: 16}", Binding("none")),
        ("{name: x, count: 1, coresPerSocket: 2, tuning: {slots: 3}}", Binding("none")),
        ("{name: x, count: 1, coresPerSocket: 2, tuning: {slots: 2}}", Binding("core", 1)),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 8, tuning: {slots: 3}},"
         "{name: y, count: 1, coresPerSocket: 8}", Binding("none")),
    ],
)  # fmt: skip
def test_ranks_are_bound_by(nodes: str, binding: Binding) -> None:
    assert planned(nodes).launching.binding == binding


def test_static_cpu_manager_leaves_whole_cores() -> None:
    """Of the first socket the kubelet has a core, and the master and DaemonSets have another."""
    node = (
        "{name: x, count: 1, sockets: 2, coresPerSocket: 28, threadsPerCore: 2, memory: 64Gi, "
        "cpuManager: static, reserved: {cpu: 1500m}}"
    )
    plan = planned(node)
    group = plan.groups[0]
    assert (group.env["OMP_NUM_THREADS"], plan.launching.binding) == ("26", Binding("core", 26, 1))
    assert group.requests == group.limits
    assert group.requests["cpu"] == "108"


def test_binding_depends_on_launch_mode_and_options() -> None:
    node = "{name: x, count: 1, sockets: 2, coresPerSocket: 8}"
    for mode, to in (("horovodrun", "core"), ("custom", "none"), ("elastic", "none")):
        assert planned(node, f"launch: {{mode: {mode}}}").launching.binding.to == to
    more = planned(node, "launch: {options: [--tag-output]}").launching
    assert (more.options, more.binding.to) == (("--tag-output",), "core")
    own = planned(node, "launch: {options: [--bind-to, socket]}").launching
    assert own.binding == Binding("none"), "the options' own binding is the only one"


def test_rdma_is_the_transport_of_cpu_ranks() -> None:
    rdma = "rdma: {resource: rdma/hca}"
    cpu = planned(f"{{name: x, count: 2, coresPerSocket: 8, {rdma}}}")
    assert cpu.launching.transport == "RDMA"
    assert cpu.groups[0].limits["rdma/hca"] == "1"
    gpu = planned(f"{{name: x, count: 2, gpus: 8, {rdma}}}")
    assert gpu.launching.transport == "", "NCCL finds the devices itself"
    assert any("LimitMEMLOCK" in warning for warning in gpu.warnings)


def test_groups_with_other_interfaces_have_own_variables() -> None:
    one = planned("{name: x, count: 1, gpus: 1, interface: eth1}").launching
    assert (one.interface, one.group_env) == ("eth1", {})
    two = planned(
        "{name: x, count: 1, gpus: 1, interface: eth1}, {name: y, count: 1, gpus: 1}"
    ).launching
    assert two.interface is None
    assert two.group_env["x"]["NCCL_SOCKET_IFNAME"] == "eth1"
    assert "y" not in two.group_env


@pytest.mark.parametrize(
    ("nodes", "rest", "says"),
    [
        ("{name: x, count: 1, coresPerSocket: 4, tuning: {ompThreads: 8}}", "",
         "8 threads on 4 cores"),
        ("{name: x, count: 1, coresPerSocket: 4, sockets: 2, tuning: {slots: 3}}", "",
         "span two sockets"),
        ("{name: x, count: 1, coresPerSocket: 4, tuning: {cpu: 5}}", "", "never scheduled"),
        ("{name: x, count: 1, gpus: 1, memory: 1Gi, tuning: {memory: 2Gi}}", "", "never scheduled"),
        ("{name: x, count: 1, gpus: 1}, {name: y, count: 1, coresPerSocket: 1}", "", "one job"),
        ("{name: x, count: 2, gpus: 1}", "volumes: {output: {pvc: a}}", "ReadWriteMany"),
        ("{name: x, count: 2, gpus: 1}", "volumes: {output: {emptyDir: {}}}", "deleted with"),
        ("{name: x, count: 2, gpus: 1}", "volumes: {output: {hostPath: /a}}", "rank 0 only"),
        ("{name: x, count: 1, gpus: 1}, {name: y, count: 1, gpus: 1}",
         "volumes: {data: {pvc: a, groups: [x]}}", "missing on group y"),
        ("{name: x, count: 1, gpus: 1}, {name: y, count: 1, coresPerSocket: 1}", "",
         "ranks of y are not bound to cores"),
        ("{name: x, count: 1, coresPerSocket: 9, numaPerSocket: 2}", "", "because coresPerSocket"),
        ("{name: x, count: 1, coresPerSocket: 8, numaPerSocket: 2, memory: 8Gi, "
         "cpuManager: static}", "", "because reserved cores"),
        ("{name: x, count: 1, gpus: 1}", "values: {workerGroups: [{name: a}]}", "replaces the"),
        ("{name: x, count: 1, gpus: 1}, {name: y, count: 1, gpus: 1}",
         "values: {worker: {slots: 2}}", "values.worker.slots has no effect"),
        ("{name: x, count: 1, gpus: 1}", "values: {worker: {env: []}}", "variables in train.env"),
        ("{name: x, count: 1, sockets: 2, coresPerSocket: 24, threadsPerCore: 2, memory: 64Gi, "
         "cpuManager: static, reserved: {cpu: 48}}", "",
         "no core for each of its ranks: ranks may span two sockets; lower reserved.cpu"),
    ],
)  # fmt: skip
def test_plan_warns(nodes: str, rest: str, says: str) -> None:
    warnings = planned(nodes, rest).warnings
    assert any(says in warning for warning in warnings), warnings


def test_ordinary_plan_has_no_warning() -> None:
    node = "{name: x, count: 4, sockets: 2, coresPerSocket: 28, threadsPerCore: 2, memory: 384Gi}"
    assert planned(node).warnings == ()


def test_every_planned_number_has_a_reason() -> None:
    group = planned(
        "{name: x, count: 1, sockets: 2, coresPerSocket: 8, memory: 64Gi, gpus: 2}"
    ).groups[0]
    numbers = {f"env.{name}" for name in group.env} | {"slots", "number", "shm"}
    numbers |= {f"resources.requests.{name}" for name in group.requests}
    assert numbers <= set(group.reasons)


@pytest.mark.parametrize(
    ("source", "says"), [("pvc", "ReadWriteMany"), ("hostPath", "on the node of rank 0 only")]
)
@pytest.mark.parametrize(("count", "spares", "warned"), [(1, 0, 0), (2, 0, 1), (1, 1, 1)])
def test_output_of_several_workers_is_warned_to_be_shared(
    count: int, spares: int, warned: int, source: str, says: str
) -> None:
    node = f"{{name: x, count: {count}, spares: {spares}, coresPerSocket: 4, memory: 16Gi}}"
    name = "results" if source == "pvc" else "/results"
    plan = planned(node, f"volumes: {{output: {{{source}: {name}}}}}\n")
    assert len([warning for warning in plan.warnings if says in warning]) == warned


def test_equal_numa_nodes_are_no_reason_for_a_warning() -> None:
    plan = planned("{name: x, count: 1, coresPerSocket: 8, numaPerSocket: 2}")
    assert [warning for warning in plan.warnings if "numaPerSocket" in warning] == []
