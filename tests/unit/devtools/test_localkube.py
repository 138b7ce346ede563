"""A node of the local cluster: names, cgroups, processes."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from devtools.common.errors import DevtoolsError
from devtools.localkube import cgroups, instance
from devtools.localkube.instance import BENCHMARK_RANGE, Instance
from devtools.localkube.node_processes import ProcessIdentity

V1 = """\
31 24 0:27 / {root}/memory rw,relatime - cgroup cgroup rw,memory
32 24 0:28 / {root}/cpuset rw,relatime - cgroup cgroup rw,cpuset
33 24 0:29 / {root}/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 24 0:29 / {root}/cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 24 0:30 /inner {root}/part rw,relatime - cgroup cgroup rw,pids
36 24 0:31 / /var/lib rw,relatime shared:1 - ext4 /dev/vda rw
"""
V2 = "31 24 0:27 / {root} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(text.format(root=tmp_path))
    return path


def test_version_1_hierarchies_are_listed_once_each(tmp_path: Path) -> None:
    mounts = table(tmp_path, V1)
    names = [path.name for path in cgroups.hierarchies(mounts)]
    assert names == ["memory", "cpuset", "cpu"]
    assert {"cpu", "cpuset", "memory", "cpuacct"} <= cgroups.controllers(mounts)


def test_version_2_controllers_are_enabled_for_pods(tmp_path: Path) -> None:
    mounts = table(tmp_path, V2)
    for directory in (tmp_path, tmp_path / "lk", tmp_path / "lk" / "pods"):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text("cpu memory\n")
    assert cgroups.controllers(mounts) == {"cpu", "memory"}
    cgroups.create("lk", cgroups.hierarchies(mounts))
    for directory in (tmp_path, tmp_path / "lk", tmp_path / "lk" / "pods"):
        assert (directory / "cgroup.subtree_control").read_text() in ("+cpu", "+memory")
    assert not (tmp_path / "lk" / "daemons" / "cgroup.subtree_control").exists()


def test_daemons_join_all_hierarchies_but_version_1_cpusets(tmp_path: Path) -> None:
    roots = [tmp_path / "memory", tmp_path / "cpuset"]
    for root in roots:
        root.mkdir()
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1")
    cgroups.create("lk", roots)
    cgroups.join_daemons("lk", roots, [42])
    assert (tmp_path / "memory" / "lk" / "daemons" / "cgroup.procs").read_text() == "42"
    assert not (tmp_path / "cpuset" / "lk" / "daemons" / "cgroup.procs").exists()


def test_kill_ends_the_recorded_process_and_no_other() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        recorded = ProcessIdentity.of(child.pid)
        replace(recorded, start=recorded.start + 1).kill_and_wait()
        assert child.poll() is None
        recorded.kill_and_wait()
        assert not recorded.is_alive()
    recorded.kill_and_wait()  # does nothing after its end


HVD = Instance("hvd")


NODES = (HVD, *HVD.others)
# The ranges of its Services and of each node's pods.
RANGES = [HVD.services, *(node.pods for node in NODES)]


def test_address_ranges_of_a_cluster_do_not_overlap() -> None:
    assert all(part.subnet_of(HVD.network) for part in RANGES)
    assert not any(a.overlaps(b) for a, b in combinations(RANGES, 2))


def test_addresses_of_nodes_are_different_and_in_no_range() -> None:
    ends = [address for node in NODES for address in (node.node_ip, node.gateway_ip)]
    assert len(set(ends)) == 2 * len(NODES)
    assert not any(end in part for end in ends for part in RANGES)


@pytest.mark.parametrize("name", ["second", "lifecycle"])
def test_two_clusters_can_run_at_once(name: str) -> None:
    other = Instance(name).network
    assert not HVD.network.overlaps(other)
    assert other.subnet_of(BENCHMARK_RANGE)


@pytest.mark.parametrize("name", ["a" * 13, "UPPER", "-x", "a b", "../x"])
def test_name_that_cannot_be_an_interface_raises_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LOCALKUBE_NAME", name)
    with pytest.raises(DevtoolsError, match=re.escape(name)):
        instance.current_instance()


def test_longest_name_makes_an_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALKUBE_NAME", "a" * 12)
    assert len(instance.current_instance().link) <= 15
