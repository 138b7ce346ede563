"""What is asked of the machine, and known of its processes and cgroups."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from devtools.common.errors import LocalkubeError
from devtools.localkube import cgroups, debian, preflight
from devtools.localkube.instance import Instance
from devtools.localkube.procs import Identity, state_and_start

HVD = Instance("hvd")


def test_a_process_is_known_by_its_start_too() -> None:
    own = Identity.of(os.getpid())
    assert own.is_alive()
    assert own.start / os.sysconf("SC_CLK_TCK") == pytest.approx(
        psutil.Process().create_time() - psutil.boot_time(), abs=2
    )
    assert not Identity(own.pid, own.start + 1, own.boot).is_alive()
    assert not Identity(own.pid, own.start, "another boot").is_alive()


def test_only_the_very_process_is_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        known = Identity.of(child.pid)
        Identity(known.pid, known.start + 1, known.boot).kill_and_wait()
        assert child.poll() is None
        known.kill_and_wait()
        assert child.wait() == -9
    known.kill_and_wait()  # harmless when it has gone


def test_a_command_name_may_look_like_the_rest_of_its_line() -> None:
    stat = "7 (a) Z 1 (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 9"
    assert state_and_start(stat) == ("S", 123456)


# cgroups, on a tree of plain files in the place of the kernel's

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


def test_version_1_hierarchies_are_found_once_each(tmp_path: Path) -> None:
    mounts = table(tmp_path, V1)
    names = [path.name for path in cgroups.hierarchies(mounts)]
    assert names == ["memory", "cpuset", "cpu"]
    assert {"cpu", "cpuset", "memory", "cpuacct"} <= cgroups.controllers(mounts)


def test_version_2_passes_its_controllers_down(tmp_path: Path) -> None:
    mounts = table(tmp_path, V2)
    for directory in (tmp_path, tmp_path / "lk", tmp_path / "lk" / "pods"):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text("cpu memory\n")
    assert cgroups.controllers(mounts) == {"cpu", "memory"}
    cgroups.create("lk", cgroups.hierarchies(mounts))
    for directory in (tmp_path, tmp_path / "lk", tmp_path / "lk" / "pods"):
        assert (directory / "cgroup.subtree_control").read_text() in ("+cpu", "+memory")
    assert not (tmp_path / "lk" / "daemons" / "cgroup.subtree_control").exists()


def test_daemons_join_all_but_version_1_cpusets(tmp_path: Path) -> None:
    roots = [tmp_path / "memory", tmp_path / "cpuset"]
    for root in roots:
        root.mkdir()
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1")
    cgroups.create("lk", roots)
    cgroups.join_daemons("lk", roots, [42])
    assert (tmp_path / "memory" / "lk" / "daemons" / "cgroup.procs").read_text() == "42"
    assert not (tmp_path / "cpuset" / "lk" / "daemons" / "cgroup.procs").exists()


def test_too_little_space_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    monkeypatch.setitem(preflight.NEEDED_SPACE, "store", 1 << 60)
    with pytest.raises(LocalkubeError, match=r"GB free, .* GB needed.*\n.*HVD_CACHE"):
        preflight.check_space(HVD)


def test_a_file_system_that_holds_no_layers_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    device = tmp_path.stat().st_dev
    line = f"30 1 {os.major(device)}:{os.minor(device)} / / rw - {{kind}} none rw\n"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(line.format(kind="ext4"))
    preflight.check_file_system(HVD, mounts)
    mounts.write_text(line.format(kind="overlay"))
    with pytest.raises(LocalkubeError, match=r"\(overlay\)"):
        preflight.check_file_system(HVD, mounts)


def test_packages_start_no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(debian, "POLICY", policy)
    with debian._no_service_starts():
        assert subprocess.run([policy], check=False).returncode == 101
    assert not policy.exists()
    policy.write_text(debian.FORBID)  # a crash has left it
    with debian._no_service_starts():
        pass
    assert not policy.exists()
    policy.write_text("the machine's own")
    with debian._no_service_starts():
        assert policy.read_text() == "the machine's own"
    assert policy.exists()


def test_missing_packages_are_found_by_their_programs(machine_with: Callable[[str], None]) -> None:
    assert "containerd" in debian.missing_packages()
    assert "util-linux" in debian.missing_packages()
