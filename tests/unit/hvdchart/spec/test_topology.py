"""Ranks, cores and reserves of a node, with the figures of GKE's published table."""

from __future__ import annotations

import pytest

from hvdchart.quantity import GI, MI
from hvdchart.spec import topology
from tests.unit.hvdchart.specs import read


# Without the 600m that DaemonSets and the master request.
@pytest.mark.parametrize(
    ("millis", "reserved"),
    [(0, 0), (1000, 60), (2000, 70), (3000, 75), (4000, 80), (5000, 83), (8000, 90), (8001, 91),
     (112_000, 350)],
)  # fmt: skip
def test_cpu_reserve_follows_the_table(millis: int, reserved: int) -> None:
    assert topology.node_reserve_cpu(millis) == reserved + 600


# In MiB, without 100 for eviction and the 768 that DaemonSets and the master request.
@pytest.mark.parametrize(
    ("size", "reserved"),
    [(0, 0), (4, 1024), (8, 1843.2), (16, 2662.4), (128, 9543.68), (256, 12165.12)],
)
def test_memory_reserve_follows_the_table(size: int, reserved: float) -> None:
    assert topology.node_reserve_memory(size * GI) == int(reserved * MI) + 868 * MI


@pytest.mark.parametrize(
    ("group", "cores"),
    [
        ("coresPerSocket: 8, memory: 8Gi, cpuManager: static", 2),
        ("coresPerSocket: 8, memory: 8Gi, cpuManager: static, reserved: {cpu: 2}", 3),
        ("coresPerSocket: 8, memory: 8Gi, cpuManager: static, reserved: {cpu: 2001m}", 3),
        ("coresPerSocket: 8, threadsPerCore: 2, memory: 8Gi, cpuManager: static, "
         "reserved: {cpu: 3}", 2),
        # What a part of a core leaves is for the master and DaemonSets.
        ("coresPerSocket: 3, memory: 8Gi, cpuManager: static, reserved: {cpu: 400m}", 1),
        ("coresPerSocket: 3, memory: 8Gi, cpuManager: static, reserved: {cpu: 401m}", 2),
        ("coresPerSocket: 8, memory: 8Gi, cpuManager: static, reserved: {cpu: 0}", 1),
    ],
)  # fmt: skip
def test_static_cpu_manager_reserves_cores_and_one_for_other_pods(group: str, cores: int) -> None:
    assert topology.reserved_cores(read(f"{{name: x, count: 1, {group}}}").nodes[0]) == cores


@pytest.mark.parametrize(
    ("group", "rest", "slots"),
    [
        ("coresPerSocket: 8", "tuning: {slots: 3}", 3),
        ("coresPerSocket: 8, tuning: {slots: 5}", "tuning: {slots: 3}", 5),
        ("coresPerSocket: 8, tuning: {slots: 5}", "values: {worker: {slots: 2}}", 2),
        ("coresPerSocket: 8", "values: {worker: null}", 1),
        # Several groups become workerGroups, whose own numbers count.
        ("gpus: 1}, {name: y, count: 1, gpus: 1", "values: {worker: {slots: 2}}", 1),
    ],
)
def test_slots_are_those_of_values_of_the_group_of_all_or_by_rule(
    group: str, rest: str, slots: int
) -> None:
    spec = read(f"{{name: x, count: 1, {group}}}", rest)
    assert topology.slots(spec.nodes[0], spec) == slots
