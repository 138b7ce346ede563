"""What hvdchart plans for cores, seen on real pods: each rank says which CPUs it got."""

from __future__ import annotations

import re
from pathlib import Path

from hvdchart import checked_values, make_plan, parse_spec
from tests.support.namespace import Namespace

CPUS = Path("/sys/devices/system/cpu")


def cores() -> int:
    """Physical cores of this machine, which is the cluster's node."""
    numbers = set()
    for topology in CPUS.glob("cpu[0-9]*/topology"):
        package = (topology / "physical_package_id").read_text()
        numbers.add((package, (topology / "core_id").read_text()))
    return len(numbers)


def cpu_set(text: str) -> set[int]:
    """0-3,8 as numbers."""
    ranges = [part.partition("-") for part in text.split(",")]
    return {n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)}


def run(namespace: Namespace, nodes: str) -> dict[int, set[int]]:
    """The CPUs of each rank of a run planned for such nodes."""
    repository, _, tag = namespace.image.rpartition(":")
    text = "apiVersion: hvdchart/v1\nname: run\n"
    text += f"image: {{repository: {repository}, tag: '{tag}'}}\n"
    text += f"nodes: [{nodes}]\ntrain: {{command: ['true']}}\n"
    log = namespace.train("run", checked_values(make_plan(parse_spec(text.encode()))))
    lines = re.findall(r"rank (\d+) of \d+ on \S+, CPUs (\S+)", log)
    return {int(rank): cpu_set(cpus) for rank, cpus in lines}


def test_ranks_of_a_dedicated_node_are_bound_to_different_cores(namespace: Namespace) -> None:
    node = f"coresPerSocket: {cores()}, tuning: {{slots: 2, cpu: 100m, memory: 256Mi}}"
    cpus_of_rank = run(namespace, f"{{name: x, count: 1, {node}}}")
    assert set(cpus_of_rank) == {0, 1}
    assert not cpus_of_rank[0] & cpus_of_rank[1]
    assert min(len(cpus) for cpus in cpus_of_rank.values()) >= cores() // 2


def test_ranks_of_a_shared_node_are_not_bound(namespace: Namespace) -> None:
    share = "shared: true, coresPerSocket: 1, memory: 256Mi, tuning: {cpu: 100m}"
    cpus_of_rank = run(namespace, f"{{name: x, count: 2, {share}}}")
    assert set(cpus_of_rank) == {0, 1}
    assert cpus_of_rank[0] == cpus_of_rank[1]
    assert len(cpus_of_rank[0]) >= cores()
