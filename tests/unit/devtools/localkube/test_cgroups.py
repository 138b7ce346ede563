"""cgroups, on a tree of plain files instead of the kernel's."""

from __future__ import annotations

from pathlib import Path

from devtools.localkube import cgroups

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
