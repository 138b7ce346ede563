"""The planned numbers and their reasons, at the limits where they change, and the warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvd_pods.shared.binding import Binding
from hvdchart.errors import SpecError
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.quantity import memory_text
from hvdchart.spec.load import parse_spec
from hvdchart.values.plan_text import document
from tests.support.specs import plan_of_nodes, spec_of_nodes

STATE = "apiVersion: hvdchart/v1\nname: a\nimage: {repository: r}\n"


def plan_group(group: str, rest: str = "") -> Plan:
    """The plan of two nodes."""
    return plan_of_nodes(f"{{name: x, count: 2, {group}}}", rest)


def plan_with_state(group: str, state: str) -> Plan:
    nodes = f"nodes: [{{name: w, coresPerSocket: 8, {group}}}]\n"
    spec = parse_spec(f"{STATE}{nodes}train: {{command: [python], state: {state}}}")
    return make_plan(spec)


def test_values_may_take_the_spares_away() -> None:
    assert plan_group("coresPerSocket: 8, spares: 2", "values: {worker: {spares: 0}}").spares == 0


def test_whole_number_of_values_may_have_a_point_as_for_helm() -> None:
    assert plan_group("coresPerSocket: 8", "values: {worker: {number: 3.0}}").workers == 3


BFLOAT16 = "TF_SET_ONEDNN_FPMATH_MODE"


def test_bfloat16_is_off_by_default() -> None:
    (group,) = plan_group("coresPerSocket: 8").groups
    assert BFLOAT16 not in group.env


def test_bfloat16_of_a_group_overrides_that_of_all() -> None:
    new, old = plan_of_nodes(
        "{name: new, count: 1, coresPerSocket: 8},"
        "{name: old, count: 1, coresPerSocket: 8, tuning: {bfloat16: false}}",
        "tuning: {bfloat16: true}",
    ).groups
    assert new.env[BFLOAT16] == "BF16"
    assert new.reasons[f"env.{BFLOAT16}"].because == "tuning.bfloat16"
    assert BFLOAT16 not in old.env
    assert f"env.{BFLOAT16}" not in old.reasons


# (the group, the key in the values of a worker, its value, because, source), which no rendered
# example has.
RULES = [
    (
        "coresPerSocket: 4",
        "env.TF_NUM_INTRAOP_THREADS",
        "3",
        "3 of 4 cores",
        "hvdchart",
    ),
    (
        "coresPerSocket: 3, gpus: 1",
        "env.TF_NUM_INTEROP_THREADS",
        "2",
        "3 cores of a rank - 2, at least 2",
        "NVIDIA",
    ),
    (
        "coresPerSocket: 1, shared: true",
        "env.OMPI_MCA_mpi_yield_when_idle",
        "1",
        "shared machines",
        "hvdchart",
    ),
    (
        "coresPerSocket: 4, sockets: 2, shared: true",
        "resources.requests.cpu",
        "4",
        "half of 2 x 4 x 1 CPUs",
        "hvdchart",
    ),
    # At least half of a small node is left, in thousandths where it is less than a CPU.
    (
        "coresPerSocket: 1",
        "resources.requests.cpu",
        "500m",
        "half of 1 x 1 x 1 CPUs",
        "hvdchart",
    ),
    (
        "gpus: 1, memory: 1Gi",
        "resources.requests.memory",
        "496Mi",
        "half of 1Gi - 3 % ",
        "hvdchart",
    ),
    (
        "gpus: 1, memory: 9728Mi, reserved: {memory: 1Gi}",
        "resources.requests.memory",
        "8Gi",
        "9728Mi - 1Gi ",
        "the spec",
    ),
    (
        "coresPerSocket: 1, memory: 3Gi, shared: true",
        "resources.requests.memory",
        "3Gi",
        "the worker's share",
        "the spec",
    ),
]


@pytest.mark.parametrize(("group", "key", "value", "because", "source"), RULES)
def test_rule_plans_number_with_reason(
    group: str, key: str, value: str, because: str, source: str
) -> None:
    rows = {row["value"]: row for row in document(plan_group(group))["reasons"]}
    row = rows[f"worker.{key}"]
    assert (str(row["is"]), row["source"]) == (value, source)
    assert row["because"].startswith(because)


@pytest.mark.parametrize(
    ("group", "size", "because"),
    [
        ("coresPerSocket: 1, sockets: 4", "2Gi", "4 ranks x 512Mi, at least 1Gi"),
        ("coresPerSocket: 1, tuning: {memory: 4Gi}", "1Gi", "1 rank x 512Mi, at least 1Gi"),
        ("coresPerSocket: 1, tuning: {memory: 2Gi}", "512Mi", "a quarter of the worker's memory"),
        ("coresPerSocket: 1, tuning: {shm: 7Gi}", "7Gi", "nodes[0].tuning.shm instead of 1Gi"),
    ],
)
def test_shared_memory_grows_with_ranks_up_to_a_quarter(
    group: str, size: str, because: str
) -> None:
    plan = plan_group(group)
    assert (memory_text(plan.shm), plan.shm_reason.because) == (size, because)


@pytest.mark.parametrize(
    ("group", "state", "size"),
    [
        ("count: 2, memory: 64Gi", "100Mi", "1224Mi"),
        # A worker has the shards of its ranks, and copies of as many.
        ("count: 2, memory: 64Gi", "100Mi, sharded: true", "1224Mi"),
        ("count: 4, memory: 64Gi", "100Mi, sharded: true", "1124Mi"),
        ("count: 1, memory: 64Gi", "100Mi, sharded: true", "1224Mi"),
        ("count: 4, minimum: 2, memory: 64Gi", "100Mi, sharded: true", "1224Mi"),
    ],
)
def test_a_state_has_shared_memory_twice(group: str, state: str, size: str) -> None:
    assert memory_text(plan_with_state(group, state).shm) == size


@pytest.mark.parametrize(
    ("group", "state", "values"),
    [
        ("memory: 64Gi", "40Gi", ["80Gi", "2 x 40Gi"]),
        ("tuning: {shm: 2Gi}", "1500Mi", ["nodes[0]", "2Gi"]),
        ("memory: 64Gi", "40Gi, sharded: true", ["80Gi", "2 x 2 x 20Gi"]),
    ],
)
def test_a_state_that_does_not_fit_twice_is_refused(
    group: str, state: str, values: list[str]
) -> None:
    with pytest.raises(SpecError) as refused:
        plan_with_state(f"count: 2, {group}", state)
    assert refused.value.path == "train.state"
    assert [value for value in values if value not in refused.value.problem] == []


STATIC = "cpuManager: static, memory: 8Gi, coresPerSocket: "


# Seen with Open MPI 4.1.4 on synthetic topologies (HWLOC_SYNTHETIC): docs/planning.md.
@pytest.mark.parametrize(
    ("nodes", "binding"),
    [
        (
            "{name: x, count: 1, sockets: 2, coresPerSocket: 7, tuning: {slots: 4}}",
            Binding("core", 3, 2),
        ),
        # The kubelet's cores and those for pods are of the first socket: each socket is named.
        (
            "{name: x, count: 1, sockets: 4, coresPerSocket: 24, memory: 8Gi, cpuManager: static, "
            "reserved: {cpu: 5}}",
            Binding("core", 18, 1),
        ),
        (
            "{name: x, count: 1, sockets: 2, coresPerSocket: 28, memory: 8Gi, cpuManager: static, "
            "reserved: {cpu: 1}, tuning: {slots: 4}}",
            Binding("core", 13, 2),
        ),
        # The first socket has just a core for its rank.
        (
            "{name: x, count: 1, sockets: 2, coresPerSocket: 3, memory: 8Gi, cpuManager: static, "
            "reserved: {cpu: 1}}",
            Binding("core", 1, 1),
        ),
        # The first socket has no core left for a rank: some rank spans sockets.
        (
            "{name: x, count: 1, sockets: 2, coresPerSocket: 8, tuning: {binding: socket}}",
            Binding("socket", 0, 1),
        ),
        (
            "{name: x, count: 1, sockets: 2, coresPerSocket: 8},"
            "{name: y, count: 1, sockets: 1, coresPerSocket: 16}",
            Binding("socket", 0, 1),
        ),
        (
            "{name: x, count: 1, sockets: 2, coresPerSocket: 8},"
            "{name: y, count: 1, sockets: 1, coresPerSocket: 16, tuning: {slots: 3}}",
            Binding("none"),
        ),
        (
            "{name: x, count: 1, sockets: 2, coresPerSocket: 8, tuning: {slots: 3}},"
            "{name: y, count: 1, coresPerSocket: 8}",
            Binding("none"),
        ),
    ],
)
def test_ranks_are_bound_by(nodes: str, binding: Binding) -> None:
    assert plan_of_nodes(nodes).launching.binding == binding


@pytest.mark.parametrize(
    ("launch", "to"),
    [
        ("mode: direct", "core"),
        ("mode: custom", "none"),
        ("options: [--tag-output]", "core"),
    ],
)
def test_binding_depends_on_the_launch_mode(launch: str, to: str) -> None:
    node = "{name: x, count: 1, sockets: 2, coresPerSocket: 8}"
    assert plan_of_nodes(node, f"launch: {{{launch}}}").launching.binding.to == to


def test_binding_of_the_options_is_the_only_one() -> None:
    node = "{name: x, count: 1, sockets: 2, coresPerSocket: 8}"
    plan = plan_of_nodes(node, "launch: {options: [--bind-to, socket]}")
    assert plan.launching.binding == Binding("none")


RDMA = "rdma: {resource: rdma/hca}"


def test_rdma_is_the_transport_of_cpu_ranks() -> None:
    plan = plan_group(f"coresPerSocket: 8, {RDMA}")
    assert plan.launching.transport == "RDMA"
    assert plan.groups[0].limits["rdma/hca"] == "1"


def test_transport_of_gpu_ranks_is_left_to_nccl() -> None:
    """NCCL finds the devices itself."""
    assert plan_group(f"gpus: 8, {RDMA}").launching.transport == ""


def test_rdma_warns_of_the_limit_of_locked_memory() -> None:
    warnings = plan_group(f"gpus: 8, {RDMA}").warnings
    assert any("LimitMEMLOCK" in warning for warning in warnings)


@pytest.mark.parametrize(
    "node",
    [
        # Two cores for each rank: the first socket has three ranks.
        "coresPerSocket: 6, sockets: 2, tuning: {slots: 5}",
        # The cores of the ranks end before the second socket ends, or where it begins.
        "coresPerSocket: 4, sockets: 2, tuning: {slots: 3}",
        "coresPerSocket: 3, sockets: 2, tuning: {slots: 5}",
        f"{STATIC}8, sockets: 2, reserved: {{cpu: 1}}, tuning: {{slots: 7}}",
        # Ranks share cores.
        "coresPerSocket: 2, sockets: 2, tuning: {slots: 5}",
    ],
)
def test_ranks_whose_cores_end_with_a_socket_span_none(node: str) -> None:
    assert not [line for line in plan_group(node).warnings if "two sockets" in line]


@pytest.mark.parametrize(
    ("nodes", "rest", "says"),
    [
        ("coresPerSocket: 5, sockets: 2, tuning: {slots: 3}", "", "span two sockets"),
        # The kubelet takes cores of the first socket.
        (f"{STATIC}7, sockets: 2, reserved: {{cpu: 1}}, tuning: {{slots: 5}}", "", "span two"),
        ("gpus: 1", "volumes: {output: {emptyDir: {}}}", "deleted with"),
        ("gpus: 1", "volumes: {output: {pvc: a}}", "ReadWriteMany"),
        ("gpus: 1", "volumes: {data: {pvc: a}}", "`readOnly: true`"),
        ("spares: 1, gpus: 1", "volumes: {output: {hostPath: /a}}", "rank 0"),
        (
            "gpus: 1}, {name: y, count: 1, gpus: 1",
            "volumes: {data: {pvc: a, groups: [x]}}",
            "volume data ",
        ),
        (
            f"{STATIC}24, sockets: 2, threadsPerCore: 2, reserved: {{cpu: 48}}",
            "",
            "no core for each of its ranks: ranks may span two sockets",
        ),
        (f"{STATIC}4", "", " 1 CPU"),
        # One socket has too few cores, but no rank spans two.
        (f"{STATIC}3, reserved: {{cpu: 1}}, tuning: {{slots: 2}}", "", "ranks are not bound"),
        (
            "gpus: 1}, {name: y, count: 1, gpus: 1",
            "values: {worker: {slots: 2}}",
            "`values.worker.slots`",
        ),
        ("gpus: 1", "values: {worker: {env: []}}", "variables in `train.env`"),
        ("coresPerSocket: 4, tuning: {slots: 2, ompThreads: 3}", "", "6 threads on 4 cores"),
        # Each rank has one thread: none can have fewer.
        ("coresPerSocket: 4, tuning: {slots: 8}", "", "`nodes[].tuning.slots`"),
        ("gpus: 8, coresPerSocket: 4, memory: 64Gi", "", " `nodes[].coresPerSocket`"),
        (
            "gpus: 8",
            "",
            "`nodes[].coresPerSocket` and `nodes[].memory`",
        ),
        (
            "gpus: 56, gpuResource: nvidia.com/mig-1g.5gb, coresPerSocket: 64, memory: 512Gi",
            "",
            "MIG slices",
        ),
        (
            "gpus: 2, gpuResource: nvidia.com/gpu.shared, coresPerSocket: 8, memory: 64Gi",
            "",
            "shared GPUs",
        ),
        (
            "gpus: 4, coresPerSocket: 8, memory: 64Gi, "
            "nodeSelector: {nvidia.com/gpu.product: Tesla-T4-SHARED}",
            "",
            "shared GPUs",
        ),
        (
            "gpus: 4, coresPerSocket: 8, memory: 64Gi, "
            "nodeSelector: {nvidia.com/gpu.sharing-strategy: mps}",
            "",
            "shared GPUs",
        ),
        (
            "gpus: 7, coresPerSocket: 8, memory: 64Gi, "
            "nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3-MIG-1g.10gb}",
            "",
            "MIG slices",
        ),
        ("coresPerSocket: 4, memory: 8Gi, tuning: {slots: 4, memory: 999Mi}", "", "up to 1000Mi"),
        ("coresPerSocket: 4, memory: 8Gi, tuning: {shm: 6Gi}", "", "counts towards 5284Mi"),
        (
            "gpus: 1, tuning: {shm: 6Gi}}, {name: y, count: 1, coresPerSocket: 4, memory: 8Gi",
            "",
            "group y: /dev/shm may take 6Gi",
        ),
        ("coresPerSocket: 4, sockets: 2, tuning: {binding: socket}", "", "bound by socket"),
        (
            "coresPerSocket: 4, memory: 8Gi",
            "volumes: {output: {emptyDir: {}}}\nvalues: {tensorboard: {enabled: true}}",
            "TensorBoard",
        ),
    ],
)
def test_plan_warns(nodes: str, rest: str, says: str) -> None:
    warnings = plan_group(nodes, rest).warnings
    assert sum(says in warning for warning in warnings) == 1, warnings


def test_slices_of_one_gpu_cause_no_warning_if_nccl_takes_them() -> None:
    """NCCL 2.30 and newer can."""
    nodes = "{name: x, count: 1, gpus: 7, gpuResource: nvidia.com/mig-1g.5gb}"
    spec = spec_of_nodes(nodes)
    assert any("MIG slices" in warning for warning in make_plan(spec).warnings)
    train = replace(spec.train, env={"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
    assert "MIG slices" not in " ".join(make_plan(replace(spec, train=train)).warnings)


@pytest.mark.parametrize(
    ("group", "rest"),
    [
        ("coresPerSocket: 4, tuning: {ompThreads: 4, cpu: 4}", ""),
        ("coresPerSocket: 4, memory: 8Gi, tuning: {slots: 4, memory: 1000Mi}", ""),
        ("coresPerSocket: 4, memory: 8Gi, tuning: {shm: 5Gi}", ""),
        (f"{STATIC}4, reserved: {{cpu: 1}}", ""),
        ("coresPerSocket: 4", "launch: {mode: direct}"),
        ("coresPerSocket: 4", "launch: {mode: custom}"),
        ("coresPerSocket: 4", "values: {worker: {number: 4}}"),
        ("coresPerSocket: 4", "values: {worker: {number: 1}}\nvolumes: {output: {pvc: a}}"),
        ("gpus: 1, coresPerSocket: 9, memory: 64Gi, numaPerSocket: 2", ""),
        ("gpus: 1, gpuResource: nvidia.com/mig-7g.40gb, coresPerSocket: 9, memory: 64Gi", ""),
        (
            "coresPerSocket: 9",
            "volumes: {data: {pvc: a, readOnly: true}, output: {nfs: {server: a, path: /b}}}",
        ),
    ],
)
def test_plan_has_no_warning(group: str, rest: str) -> None:
    assert plan_group(group, rest).warnings == ()
