"""Each planning rule's number and reason, at the limits where it changes."""

from __future__ import annotations

import pytest

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.quantity import memory_text
from hvdchart.spec.load import parse_spec
from hvdchart.values.report import document

HEAD = "apiVersion: hvdchart/v1\nname: run\ntrain: {command: [a]}\n"


def planned(group: str, rest: str = "") -> Plan:
    text = f"{HEAD}nodes: [{{name: x, count: 2, {group}}}]\n{rest}"
    return make_plan(parse_spec(text.encode()))


# (the group, the key in the values of a worker, its value, because, source)
RULES = [
    ("gpus: 4", "slots", "4", "one rank per GPU", "Horovod"),
    ("coresPerSocket: 4, sockets: 2", "slots", "2", "one rank per socket", "Intel"),
    ("coresPerSocket: 4", "number", "2", "nodes[0].count", "the spec"),
    ("coresPerSocket: 4", "env.OMP_NUM_THREADS", "4", "coresPerSocket: one thread per core",
     "Intel"),
    ("coresPerSocket: 4, tuning: {slots: 2}", "env.OMP_NUM_THREADS", "2",
     "cores of a rank: one thread per core", "Intel"),
    ("coresPerSocket: 5", "env.TF_NUM_INTRAOP_THREADS", "3", "5 cores of a rank - 2", "Intel"),
    ("coresPerSocket: 4", "env.TF_NUM_INTRAOP_THREADS", "3",
     "3 of 4 cores: too few to leave two free", "hvdchart"),
    ("coresPerSocket: 1", "env.TF_NUM_INTRAOP_THREADS", "1",
     "1 of 1 core: too few to leave two free", "hvdchart"),
    ("coresPerSocket: 20, gpus: 2", "env.OMP_NUM_THREADS", "10",
     "cores of a rank: one thread per core", "hvdchart"),
    ("coresPerSocket: 20, gpus: 2", "env.TF_NUM_INTRAOP_THREADS", "8", "10 cores of a rank - 2",
     "hvdchart"),
    ("coresPerSocket: 20, gpus: 2", "env.TF_NUM_INTEROP_THREADS", "8",
     "10 cores of a rank - 2, at least 2: they feed its GPU", "NVIDIA"),
    ("coresPerSocket: 3, gpus: 1", "env.TF_NUM_INTEROP_THREADS", "2",
     "3 cores of a rank - 2, at least 2: they feed its GPU", "NVIDIA"),
    ("coresPerSocket: 64, sockets: 2, numaPerSocket: 4", "slots", "8", "one rank per NUMA node",
     "Intel"),
    ("coresPerSocket: 64, sockets: 2, numaPerSocket: 4", "env.OMP_NUM_THREADS", "16",
     "cores of a rank: one thread per core", "Intel"),
    ("coresPerSocket: 2", "env.TF_NUM_INTEROP_THREADS", "2", "two operations in parallel", "Intel"),
    ("coresPerSocket: 1", "env.TF_NUM_INTEROP_THREADS", "1", "1 core: one operation at a time",
     "hvdchart"),
    ("coresPerSocket: 1", "env.TF_ENABLE_ONEDNN_OPTS", "1",
     "on every CPU, also where TensorFlow's default is off", "hvdchart"),
    ("coresPerSocket: 1, tuning: {kmpBlocktime: 5}", "env.KMP_BLOCKTIME", "5",
     "nodes[0].tuning.kmpBlocktime", "the spec"),
    ("coresPerSocket: 1, tuning: {kmpAffinity: compact}", "env.KMP_AFFINITY", "compact",
     "nodes[0].tuning.kmpAffinity", "the spec"),
    ("coresPerSocket: 1, shared: true", "env.OMPI_MCA_mpi_yield_when_idle", "1",
     "shared machines: waiting ranks yield their core", "hvdchart"),
    ("coresPerSocket: 4, sockets: 2, shared: true", "resources.requests.cpu", "4",
     "half of 2 x 4 x 1 CPUs: idle CPU can be borrowed", "hvdchart"),
    ("coresPerSocket: 8, threadsPerCore: 2", "resources.requests.cpu", "15",
     "1 x 8 x 2 CPUs - 710m reserved, in whole CPUs", "GKE's table"),
    # At least half of a small node is left, in thousandths where it is less than a CPU.
    ("coresPerSocket: 1", "resources.requests.cpu", "500m",
     "half of 1 x 1 x 1 CPUs: the usual reserve, 660m, is more", "hvdchart"),
    ("coresPerSocket: 4, reserved: {cpu: 3500m}", "resources.requests.cpu", "500m",
     "1 x 4 x 1 CPUs - 3500m reserved", "the spec"),
    ("coresPerSocket: 4, memory: 8Gi, cpuManager: static, reserved: {cpu: 1}",
     "resources.requests.cpu", "2",
     "1 x 4 x 1 CPUs - 1 of the kubelet - 600m for master and DaemonSets, in whole cores",
     "Kubernetes"),
    ("coresPerSocket: 28, sockets: 2, threadsPerCore: 2, memory: 8Gi, cpuManager: static, "
     "reserved: {cpu: 4}",
     "resources.requests.cpu", "106",
     "2 x 28 x 2 CPUs - 4 of the kubelet - 600m for master and DaemonSets, in whole cores",
     "Kubernetes"),
    ("gpus: 1, memory: 64Gi", "resources.requests.memory", "55Gi",
     "64Gi - 3 % for the kernel - 6362Mi reserved, in whole GiB", "GKE's table"),
    ("gpus: 1, memory: 1Gi", "resources.requests.memory", "496Mi",
     "half of 1Gi - 3 % for the kernel, in whole MiB", "hvdchart"),
    ("gpus: 1, memory: 3Gi", "resources.requests.memory", "1489Mi",
     "half of 3Gi - 3 % for the kernel, in whole MiB", "hvdchart"),
    ("gpus: 1, memory: 9728Mi, reserved: {memory: 1Gi}", "resources.requests.memory", "8Gi",
     "9728Mi - 1Gi reserved, in whole GiB", "the spec"),
    ("gpus: 1, memory: 9Gi, reserved: {memory: 1Gi}", "resources.requests.memory", "8Gi",
     "9Gi - 1Gi reserved", "the spec"),
    ("gpus: 1, memory: 9Gi, reserved: {memory: 1025Mi}", "resources.requests.memory", "8191Mi",
     "9Gi - 1025Mi reserved", "the spec"),
    ("coresPerSocket: 1, memory: 3Gi, shared: true", "resources.requests.memory", "3Gi",
     "the worker's share", "the spec"),
    ("gpus: 2", "resources.limits.nvidia.com/gpu", "2", "all GPUs of the node", "Horovod"),
    ("gpus: 2, rdma: {resource: rdma/hca, count: 3}", "resources.limits.rdma/hca", "3",
     "rdma.count", "the spec"),
]  # fmt: skip


@pytest.mark.parametrize(("group", "key", "value", "because", "source"), RULES)
def test_rule_plans_number_with_reason(
    group: str, key: str, value: str, because: str, source: str
) -> None:
    rows = {row["value"]: row for row in document(planned(group))["reasons"]}
    row = rows[f"worker.{key}"]
    assert (str(row["is"]), row["because"], row["source"]) == (value, because, source)


@pytest.mark.parametrize(
    ("group", "size", "because"),
    [
        ("gpus: 1", "1Gi", "1 rank x 1Gi, at least 1Gi"),
        ("gpus: 3", "3Gi", "3 ranks x 1Gi, at least 1Gi"),
        ("coresPerSocket: 1, sockets: 4", "2Gi", "4 ranks x 512Mi, at least 1Gi"),
        ("coresPerSocket: 1, tuning: {memory: 4Gi}", "1Gi", "1 rank x 512Mi, at least 1Gi"),
        ("coresPerSocket: 1, tuning: {memory: 2Gi}", "512Mi", "a quarter of the worker's memory"),
        (
            "coresPerSocket: 1, tuning: {shm: 7Gi}",
            "7Gi",
            "nodes[0].tuning.shm instead of 1Gi",
        ),
    ],
)
def test_shared_memory_grows_with_ranks_up_to_a_quarter(
    group: str, size: str, because: str
) -> None:
    plan = planned(group)
    assert (memory_text(plan.shm), plan.shm_reason.because) == (size, because)


def test_node_without_sizes_has_no_requests_or_threads() -> None:
    group = planned("gpus: 1").groups[0]
    assert (group.cpu, group.memory, dict(group.requests), dict(group.env)) == (None, None, {}, {})


@pytest.mark.parametrize(
    ("group", "warning"),
    [
        ("coresPerSocket: 4, tuning: {slots: 2, ompThreads: 3}",
         "group x: OMP_NUM_THREADS starts 6 threads on 4 cores; lower it"),
        ("coresPerSocket: 4, tuning: {intraOpThreads: 5}",
         "group x: TF_NUM_INTRAOP_THREADS starts 5 threads on 4 cores; lower it"),
        ("coresPerSocket: 4, tuning: {cpu: 4001m}",
         "group x: requests 4001m CPUs of a node with 4: never scheduled; lower tuning.cpu"),
        ("gpus: 1, memory: 1Gi, tuning: {memory: 1025Mi}",
         "group x: requests 1025Mi of a node with 1Gi: never scheduled; lower tuning.memory"),
        ("coresPerSocket: 4, memory: 8Gi, tuning: {slots: 4, memory: 999Mi}",
         "group x: 999Mi of memory for 4 ranks: they and the process that has imported their "
         "framework take up to 1000Mi before they train; raise memory or lower tuning.slots"),
        ("coresPerSocket: 4, memory: 8Gi, cpuManager: static",
         "group x: cpuManager static: the plan assumes that the kubelet reserves 1 CPU; set "
         "reserved.cpu to the number of CPUs in its reservedSystemCPUs, or else to the sum of its "
         "kubeReserved and systemReserved"),
        ("coresPerSocket: 4, sockets: 2, tuning: {binding: socket}",
         "ranks are bound by socket: check with lscpu that nodes have the sockets of the spec; "
         "a virtual machine may show each CPU as a socket, and a rank would have one core"),
        ("coresPerSocket: 4, tuning: {binding: none}",
         "ranks are not bound to cores: give all groups the same number of ranks per socket"),
        # One socket has too few cores, but no rank spans two.
        ("coresPerSocket: 3, memory: 8Gi, cpuManager: static, reserved: {cpu: 1}, "
         "tuning: {slots: 2}",
         "ranks are not bound to cores: give all groups the same number of ranks per socket"),
    ],
)  # fmt: skip
def test_plan_has_this_one_warning(group: str, warning: str) -> None:
    assert planned(group).warnings == (warning,)


@pytest.mark.parametrize(
    ("group", "rest"),
    [
        ("coresPerSocket: 4, tuning: {ompThreads: 4, cpu: 4}", ""),
        ("gpus: 1, memory: 1Gi, tuning: {memory: 1Gi}", ""),
        ("coresPerSocket: 4, memory: 8Gi, tuning: {slots: 4, memory: 1000Mi}", ""),
        ("coresPerSocket: 4, memory: 8Gi, cpuManager: static, reserved: {cpu: 1}", ""),
        ("coresPerSocket: 4", "launch: {mode: elastic}"),
        ("coresPerSocket: 4", "launch: {mode: custom}"),
        ("coresPerSocket: 4", "launch: {options: [--bind-to, core]}"),
        ("coresPerSocket: 4", "values: {worker: {number: 4}}"),
        ("gpus: 3, sockets: 2, coresPerSocket: 4", ""),
        ("gpus: 1, coresPerSocket: 9, numaPerSocket: 2", ""),
        ("coresPerSocket: 4, shared: true", ""),
        (
            "gpus: 1",
            "volumes: {data: {pvc: a, readOnly: true}, output: {nfs: {server: a, path: /b}}}",
        ),
    ],
)
def test_plan_has_no_warning(group: str, rest: str) -> None:
    assert planned(group, rest).warnings == ()
