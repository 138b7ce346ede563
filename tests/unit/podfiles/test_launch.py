"""The launchers' command lines, each MPI in its own words, and the CPUs that a rank gets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import hydra
import launch
import mpi
import pytest
import rank
from binding import BindingError, cpus_of, read_topology
from hypothesis import given
from hypothesis import strategies as st
from settings import Binding, ConfigurationError

from tests.unit.podfiles.runs import make_run as run

CORES = {"to": "core", "coresPerRank": 14, "ranksPerSocket": 0}
CORES_BY_SOCKET = {"to": "core", "coresPerRank": 3, "ranksPerSocket": 2}
SOCKETS = {"to": "socket", "coresPerRank": 0, "ranksPerSocket": 2}
EVERY_MPI = [mpi.OPEN_MPI_4, mpi.OPEN_MPI_5, mpi.INTEL_MPI, mpi.MPICH]


@pytest.fixture(autouse=True)
def pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the chart tells a master of its own pod."""
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")


# First lines of what each says, as seen.
@pytest.mark.parametrize(
    ("said", "flavour"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", mpi.OPEN_MPI_4),
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to", mpi.OPEN_MPI_5),
        ("mpirun (Open MPI) 10.0.1\n", mpi.OPEN_MPI_5),
        ("mpiexec (OpenRTE) 4.0.3\n", mpi.OPEN_MPI_4),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 2026", mpi.INTEL_MPI),
        ("HYDRA build details:\n    Version:        4.3.2\n", mpi.MPICH),
        ("srun 23.02", None),
    ],
    ids=["4.1", "5.0", "10.0", "OpenRTE", "Intel", "MPICH", "unknown"],
)
def test_which_mpi_it_is(said: str, flavour: mpi.Flavour | None) -> None:
    assert mpi.flavour_of(said) == flavour


def test_without_a_known_mpirun_the_way_out_is_named(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    with pytest.raises(ConfigurationError, match="no mpirun on PATH"):
        mpi.find_flavour(environment)
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho srun 23.02\n")
    program.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"names no MPI known here.*srun 23\.02.*custom"):
        mpi.find_flavour(environment)


def line(flavour: mpi.Flavour, **changes: Any) -> list[str]:
    """The command of a run of 8 ranks, and that it ends with the script."""
    found = launch.command(run(**changes), flavour)
    assert found[:3] == ["mpirun", "-np", "8"]
    assert found[-3:] == ["8", "python", "train.py"]
    return found


@pytest.mark.parametrize("flavour", [mpi.OPEN_MPI_4, mpi.OPEN_MPI_5], ids=lambda f: f.name)
@pytest.mark.parametrize(
    ("binding", "words"),
    [
        (None, ["--map-by", "slot", "--bind-to", "none"]),
        (CORES, ["--map-by", "slot:PE=14", "--bind-to", "core", "--report-bindings"]),
        (
            CORES_BY_SOCKET,
            ["--map-by", "ppr:2:socket:PE=3", "--bind-to", "core", "--report-bindings"],
        ),
        (SOCKETS, ["--map-by", "ppr:2:socket", "--bind-to", "socket", "--report-bindings"]),
    ],
)
def test_open_mpi(flavour: mpi.Flavour, binding: dict[str, Any] | None, words: list[str]) -> None:
    changes = {"binding": binding} if binding else {}
    assert line(flavour, options=["--tag-output"], **changes)[3:-5] == [
        "--hostfile", str(mpi.HOSTFILE), *words, "--tag-output", "python3",
    ]  # fmt: skip
    assert mpi.hostfile(run().hosts, flavour).splitlines()[-1] == "hvd-gpu-0.hvd slots=4"


@pytest.mark.parametrize(
    ("flavour", "words"),
    [
        (mpi.INTEL_MPI, ["-machinefile", str(mpi.HOSTFILE)]),
        (mpi.MPICH, ["-f", str(mpi.HOSTFILE), "-localhost", "10.1.2.3"]),
    ],
    ids=["Intel MPI", "MPICH"],
)
def test_hydra(flavour: mpi.Flavour, words: list[str]) -> None:
    rank_py = ["python3", "-I", "/horovod/bin/rank.py"]
    unbound = line(flavour, options=["-prepend-rank"])
    assert unbound[3:-3] == [*words, "-genvnone", "-prepend-rank", *rank_py]
    bound = line(flavour, binding=CORES_BY_SOCKET)
    assert bound[3:-3] == [
        *words, "-genvnone", *rank_py,
        "--bind-to", "core", "--cores-per-rank", "3", "--ranks-per-socket", "2",
    ]  # fmt: skip
    assert mpi.hostfile(run().hosts, flavour).splitlines()[-1] == "hvd-gpu-0.hvd:4"


@pytest.mark.parametrize(
    ("flavour", "option"),
    [
        (mpi.OPEN_MPI_4, "-genv"),
        (mpi.OPEN_MPI_4, "--prtemca"),
        (mpi.OPEN_MPI_5, "-ppn"),
        (mpi.INTEL_MPI, "--mca"),
        (mpi.INTEL_MPI, "-bind-to"),
        (mpi.MPICH, "--report-bindings"),
        (mpi.MPICH, "-x"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_options_of_another_mpi_are_refused(flavour: mpi.Flavour, option: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        launch.command(run(options=[option, "a"]), flavour)
    for word in ("launch.options", option, flavour.name):
        assert word in str(refused.value)


@pytest.mark.parametrize("option", ["--bind-to", "-bind-to", "--cpu-set", "--rankfile"])
def test_a_binding_of_the_users_is_the_only_one(option: str) -> None:
    command = line(mpi.OPEN_MPI_4, options=[option, "core"])
    given = [option] if "bind-to" in option else []
    assert [item for item in command if "bind-to" in item] == given


def test_horovodrun_command() -> None:
    command = launch.command(
        run(interface="eth1", mode="horovodrun", binding=CORES), mpi.OPEN_MPI_4
    )
    assert command[:3] == ["horovodrun", "-np", "8"]
    assert command[command.index("--network-interfaces") + 1] == "eth1"
    assert "--cores-per-rank" in command, "horovodrun binds nothing: the ranks do"


@pytest.mark.parametrize("flavour", EVERY_MPI, ids=lambda flavour: flavour.name)
def test_custom_command_is_the_users_own(flavour: mpi.Flavour) -> None:
    args = ["mpirun", "-np", "$(NP)", "--hostfile", "$(HOSTFILE)", "./a b", "$HOME"]
    command = launch.command(run(args=args, mode="custom"), flavour)
    assert command == ["mpirun", "-np", "8", "--hostfile", str(mpi.HOSTFILE), "./a b", "$HOME"]
    assert not launch.needs_mpirun(run(args=args, mode="custom"))


@pytest.mark.parametrize("flavour", EVERY_MPI, ids=lambda flavour: flavour.name)
def test_a_custom_command_may_take_in_the_launchers_line(flavour: mpi.Flavour) -> None:
    wrapped = run(args=["time", "$(LAUNCH)", "a", "b"], mode="custom", binding=CORES)
    assert launch.needs_mpirun(wrapped)
    found = launch.command(wrapped, flavour)
    assert found == ["time", *line(flavour, binding=CORES)[:-2], "a", "b"]


def test_no_command_runs_the_check() -> None:
    assert launch.command(run(args=[]), mpi.MPICH)[-1].endswith("check.py")


def test_master_env_wins_over_the_launchers_settings() -> None:
    environment = launch.environment(run(), {"OMPI_MCA_pml": "cm", "PATH": "/usr/bin"})
    assert environment["OMPI_MCA_pml"] == "cm"
    assert environment["PATH"].endswith("generated/bin:/usr/bin")
    for keep in ("OMPI_MCA_orte_keep_fqdn_hostnames", "PRTE_MCA_prte_keep_fqdn_hostnames"):
        assert environment[keep] == "1"


def test_one_interface_and_one_transport_for_all() -> None:
    environment = launch.environment(run(interface="eth1", transport="RDMA"), {})
    assert environment["OMPI_MCA_btl_tcp_if_include"] == "eth1"
    assert environment["PRTE_MCA_prte_if_include"] == "eth1"
    assert environment["I_MPI_HYDRA_IFACE"] == "eth1"
    assert environment["OMPI_MCA_pml"] == "ucx"
    assert launch.environment(run(), {})["OMPI_MCA_pml"] == "ob1"


def test_many_hosts_are_all_started_by_the_master() -> None:
    """Intel MPI has workers start workers beyond 16, Open MPI beyond 64."""
    group = {"statefulSet": "w", "number": 300, "maximum": 300, "slots": 1, "revision": "r"}
    environment = launch.environment(run(groups=[group]), {})
    for name in ("I_MPI_HYDRA_BRANCH_COUNT", "OMPI_MCA_plm_rsh_num_concurrent"):
        assert environment[name] == "300"


def test_a_ranks_arguments_end_where_its_command_begins() -> None:
    words = [
        "--bind-to",
        "core",
        "--cores-per-rank",
        "3",
        "8",
        "python",
        "--bind-to",
        "x",
        "--",
        "-h",
    ]
    found = rank.parse(words)
    assert (found.bind_to, found.cores_per_rank, found.ranks) == ("core", 3, 8)
    assert found.command == ["python", "--bind-to", "x", "--", "-h"]
    assert rank.parse(["0", "python", "-c", "1"]).command == ["python", "-c", "1"]


@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137), ("exit 0", 0)])
def test_hydra_is_told_of_a_failed_rank(
    monkeypatch: pytest.MonkeyPatch, script: str, code: int
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setenv("PMI_FD", str(writer))
    before = signal.getsignal(signal.SIGTERM)
    assert hydra.supervise(["sh", "-c", script]) == code
    signal.signal(signal.SIGTERM, before)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        assert told.read() == (hydra.abort_command(code) if code else b"")


def topology(sockets: int, cores: int, threads: int) -> list[list[set[int]]]:
    """As Linux numbers it: the first hyperthread of every core, then the second."""
    total = sockets * cores
    return [
        [
            {core + thread * total for thread in range(threads)}
            for core in range(first, first + cores)
        ]
        for first in range(0, total, cores)
    ]


def test_the_published_node_has_a_rank_a_socket() -> None:
    xeon = topology(2, 28, 2)
    for local_rank in (0, 1):
        first = 28 * local_rank
        every = {*range(first, first + 28), *range(56 + first, 56 + first + 28)}
        assert cpus_of(Binding("core", 28), xeon, local_rank) == every
        assert cpus_of(Binding("socket", 0, 1), xeon, local_rank) == every


def test_cores_left_over_stay_with_their_socket() -> None:
    """Four ranks of three cores on two sockets of seven: none of them straddles."""
    found = [cpus_of(Binding("core", 3, 2), topology(2, 7, 1), local) for local in range(4)]
    assert found == [{0, 1, 2}, {3, 4, 5}, {7, 8, 9}, {10, 11, 12}]


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 2), st.integers(1, 4))
def test_no_two_ranks_share_a_core(sockets: int, cores: int, threads: int, each: int) -> None:
    node = topology(sockets, cores, threads)
    ranks = sockets * cores // each
    found = [cpus_of(Binding("core", each), node, local) for local in range(ranks)]
    assert all(len(cpus) == each * threads for cpus in found)
    assert len(set().union(*found)) == ranks * each * threads


@pytest.mark.parametrize(
    ("binding", "local_rank", "words"),
    [
        (Binding("core", 3), 2, ["coresPerRank is 3", "9 cores", "has 8"]),
        (Binding("core", 3, 2), 1, ["coresPerRank is 3", "6 cores", "has 4"]),
        (Binding("socket", 0, 2), 4, ["ranksPerSocket is 2", "3 sockets", "on 2"]),
    ],
)
def test_too_few_cpus(binding: Binding, local_rank: int, words: list[str]) -> None:
    with pytest.raises(BindingError) as refused:
        cpus_of(binding, topology(2, 4, 1), local_rank)
    for word in words:
        assert word in str(refused.value)


def test_only_allowed_cpus_count(tmp_path: Path) -> None:
    for cpu, (socket, core) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 0)]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (folder / "core_id").write_text(f"{core}\n")
    assert read_topology({0, 1, 2, 4, 5}, tmp_path) == [[{0, 4}, {2}], [{1, 5}]]
    with pytest.raises(BindingError, match=r"launch\.binding\.to.*CPU 9"):
        read_topology({9}, tmp_path)
