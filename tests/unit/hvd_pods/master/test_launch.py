"""The launcher's command line and environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common.errors import ConfigurationError
from hvd_pods.master import launch, mpi
from tests.unit.hvd_pods.runs import make_run

CORES = {"to": "core", "coresPerRank": 14, "ranksPerSocket": 0}
CORES_BY_SOCKET = {"to": "core", "coresPerRank": 3, "ranksPerSocket": 2}
SOCKETS = {"to": "socket", "coresPerRank": 0, "ranksPerSocket": 2}
# What Open MPI gets, and what the ranks get that bind themselves.
BINDINGS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({**CORES, "to": "none"}, ["slot", "--bind-to", "none"], []),
    (CORES, ["slot:PE=14", "--bind-to", "core"], ["--bind-to", "core", "--cores-per-rank", "14"]),
    (
        CORES_BY_SOCKET,
        ["ppr:2:socket:PE=3", "--bind-to", "core"],
        ["--bind-to", "core", "--cores-per-rank", "3", "--ranks-per-socket", "2"],
    ),
    (
        SOCKETS,
        ["ppr:2:socket", "--bind-to", "socket"],
        ["--bind-to", "socket", "--ranks-per-socket", "2"],
    ),
]
HOSTS = {
    mpi.OPEN_MPI_4: ["--hostfile", str(mpi.HOSTFILE)],
    mpi.OPEN_MPI_5: ["--hostfile", str(mpi.HOSTFILE)],
    mpi.INTEL_MPI: ["-machinefile", str(mpi.HOSTFILE), "-genvnone"],
    mpi.MPICH: ["-f", str(mpi.HOSTFILE), "-localhost", "10.1.2.3", "-genvnone"],
}
RANK = ["python3", "-I", "-S", "/horovod/bin/hvd_pods/rank/start.py"]


def by_name(value: Any) -> str:
    return getattr(value, "name", str(value))


@pytest.fixture(autouse=True)
def pod_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")


@pytest.mark.parametrize("implementation", HOSTS, ids=by_name)
@pytest.mark.parametrize(("binding", "open_mpi", "own"), BINDINGS)
def test_open_mpi_binds_ranks_and_under_hydra_they_bind_themselves(
    implementation: mpi.MpiImplementation,
    binding: dict[str, Any],
    open_mpi: list[str],
    own: list[str],
) -> None:
    option = "-prepend-rank" if implementation.hydra else "--tag-output"
    run = make_run(options=[option], binding=binding)
    reports = ["--report-bindings"] if own else []
    bound = [] if implementation.hydra else ["--map-by", *open_mpi, *reports]
    assert launch.build_command(run, implementation) == [
        "mpirun",
        "-np",
        "8",
        *HOSTS[implementation],
        *bound,
        option,
        *RANK,
        *(own if implementation.hydra else []),
        "8",
        "python",
        "train.py",
    ]


def test_horovodrun_command_has_hosts_interface_and_options() -> None:
    run = make_run(interface="eth1", mode="horovodrun", binding=CORES, options=["--verbose"])
    assert launch.build_command(run, mpi.OPEN_MPI_4) == [
        "horovodrun",
        "-np",
        "8",
        "--hostfile",
        "/horovod/generated/hostfile",
        "--network-interfaces",
        "eth1",
        "--ssh-port",
        "2222",
        "--verbose",
        *RANK,
        "--bind-to",
        "core",
        "--cores-per-rank",
        "14",
        "8",
        "python",
        "train.py",
    ]
    without = launch.build_command(make_run(mode="horovodrun"), mpi.OPEN_MPI_4)
    assert "--network-interfaces" not in without


def test_master_starts_the_ranks_itself_without_options() -> None:
    run = make_run(mode="direct", binding=CORES)
    assert launch.build_command(run, mpi.OPEN_MPI_4) == [
        "python3",
        "-I",
        "-S",
        "/horovod/bin/hvd_pods/master/direct.py",
        "/horovod/generated/hostfile",
        "--bind-to",
        "core",
        "--cores-per-rank",
        "14",
        "8",
        "python",
        "train.py",
    ]
    with pytest.raises(ConfigurationError, match="takes none"):
        launch.build_command(make_run(mode="direct", options=["--other"]), mpi.OPEN_MPI_4)


# Horovod takes a 0 for the most ranks there may be, and finds no slots.
@pytest.mark.parametrize(("limit", "most"), [(12, "12"), (0, "8")])
@pytest.mark.parametrize(("interface", "named"), [("eth1", ["eth1"]), ("", ["eth0"])])
def test_elastic_command_follows_the_discovery_script(
    interface: str, named: list[str], limit: int, most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "default_interface", lambda: "eth0")
    run = make_run(mode="elastic", interface=interface, minRanks=2, maxRanks=limit)
    assert launch.build_command(run, mpi.OPEN_MPI_4) == [
        "horovodrun",
        "-np",
        "8",
        "--min-np",
        "2",
        "--max-np",
        most,
        "--host-discovery-script",
        "/horovod/generated/bin/hosts",
        "--blacklist-cooldown-range",
        "1",
        "10",
        "--network-interfaces",
        *named,
        "--ssh-port",
        "2222",
        *RANK,
        "0",
        "python",
        "train.py",
    ]


def test_custom_command_may_include_the_launchers_line() -> None:
    wrapped = make_run(args=["time", "$(LAUNCH)", "a", "b"], mode="custom", binding=CORES)
    line = launch.build_command(make_run(args=["a", "b"], binding=CORES), mpi.OPEN_MPI_4)
    assert launch.build_command(wrapped, mpi.OPEN_MPI_4) == ["time", *line]


def test_select_mpi_without_an_mpirun_takes_open_mpis_form_or_refuses(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    script = make_run(mode="custom", args=["./run.sh"])
    assert launch.select_mpi(script, environment) is mpi.OPEN_MPI_4
    for run in (make_run(), make_run(mode="custom", args=["$(LAUNCH)"])):
        with pytest.raises(ConfigurationError, match="no mpirun on PATH"):
            launch.select_mpi(run, environment)


def test_master_env_overrides_the_launchers_settings() -> None:
    inherited = {"OMPI_MCA_pml": "cm", "PATH": "/usr/bin", "OWN": "1"}
    environment = launch.build_environment(make_run(), inherited)
    assert (environment["OMPI_MCA_pml"], environment["OWN"]) == ("cm", "1")
    assert environment["PATH"] == "/horovod/generated/bin:/usr/bin"
    assert environment["OMPI_MCA_btl"] == "^openib,ofi,uct,usnic"
    by_default = launch.build_environment(make_run(), {})["PATH"]
    assert by_default == "/horovod/generated/bin:/usr/local/bin:/usr/bin:/bin"


@pytest.mark.parametrize(("mode", "is_named"), [("custom", True), ("mpirun", False)])
@pytest.mark.parametrize(
    "variable",
    [
        "OMPI_MCA_orte_default_hostfile",
        "PRTE_MCA_prte_default_hostfile",
        "I_MPI_HYDRA_HOST_FILE",
        "HYDRA_HOST_FILE",
    ],
)
def test_each_mpi_finds_the_hosts_in_a_command_of_the_users_own(
    variable: str, mode: str, is_named: bool
) -> None:
    """The chart's own command line names the host file by an option, or in another way."""
    environment = launch.build_environment(make_run(mode=mode), {})
    assert environment.get(variable) == ("/horovod/generated/hostfile" if is_named else None)


def test_discovery_script_prints_the_live_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LIVE_HOSTS", tmp_path / "live")
    monkeypatch.setattr(launch, "DISCOVERY", tmp_path / "discovery")
    hosts = make_run().hosts
    launch.write_live_hosts(hosts)
    assert launch.DISCOVERY.stat().st_mode & 0o777 == 0o755
    os.utime(launch.DISCOVERY, (1, 1))
    launch.write_live_hosts(hosts[2:])
    printed = subprocess.run([launch.DISCOVERY], capture_output=True, text=True, check=True).stdout
    assert printed == "hvd-gpu-0.hvd:4\n"
    assert launch.DISCOVERY.stat().st_mtime == 1, "horovodrun may be reading it: written once"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["discovery", "live"]


@pytest.mark.parametrize(
    ("first", "mode", "line"),
    [
        (b"#!/opt/python3.11 -s", "elastic", "exec /opt/python3.11 -s {guard} elastic {program}"),
        (b"#! /usr/bin/env python3", "horovodrun", "exec /usr/bin/env python3 {guard} horovodrun"),
        (b"#!/bin/sh", "horovodrun", ""),
        (b"#!/opt/python3", "custom", ""),
        (b"\x7fELF", "elastic", None),
    ],
)
@pytest.mark.promise("horovodrun is guarded in its own python or elastic is refused")
def test_horovodrun_is_guarded_in_its_own_python_or_elastic_is_refused(
    first: bytes, mode: str, line: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = tmp_path / "guarded"
    program = tmp_path / "horovodrun"
    program.write_bytes(first + b"\n")
    program.chmod(0o755)
    monkeypatch.setattr(launch, "GUARDED", guarded)
    monkeypatch.setenv("PATH", str(tmp_path))
    if line is None:
        with pytest.raises(ConfigurationError, match="horovodrun is not a Python script"):
            launch.guard_horovodrun(make_run(mode=mode))
        return
    launch.guard_horovodrun(make_run(mode=mode))
    written = guarded.read_text() if guarded.exists() else ""
    assert line.format(guard=launch.GUARD, program=program) in written
    assert bool(written) == bool(line)
