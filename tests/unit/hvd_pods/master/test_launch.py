"""The launcher's command line and environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master import launch, mpi
from hvd_pods.shared.errors import ConfigurationError
from hvd_pods.shared.run import Run
from tests.support.runs import make_run

CORES = {"to": "core", "cores_per_rank": 14, "ranks_per_socket": 0}
CORES_BY_SOCKET = {"to": "core", "cores_per_rank": 3, "ranks_per_socket": 2}
SOCKETS = {"to": "socket", "cores_per_rank": 0, "ranks_per_socket": 2}
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
    option = "-prepend-rank" if implementation.is_hydra else "--tag-output"
    run = make_run(options=[option], binding=binding)
    reports = ["--report-bindings"] if own else []
    bound = [] if implementation.is_hydra else ["--map-by", *open_mpi, *reports]
    assert launch.build_command(run, implementation) == [
        "mpirun",
        "-np",
        "8",
        *HOSTS[implementation],
        *bound,
        option,
        *RANK,
        *(own if implementation.is_hydra else []),
        "8",
        "python",
        "train.py",
    ]


@pytest.mark.parametrize("implementation", HOSTS, ids=by_name)
def test_mpirun_names_the_ranks_of_lines_where_that_is_asked_for(
    implementation: mpi.MpiImplementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only here is it known whose mpirun the image has."""
    monkeypatch.setenv("HVD_TAG_OUTPUT", "1")
    own = list(implementation.tags)
    line = launch.build_command(make_run(), implementation)
    assert [word for word in line if word in own] == own
    given = "-l" if implementation.is_hydra else "--tag-output"
    line = launch.build_command(make_run(options=[given]), implementation)
    assert [word for word in line if word in (*own, given)] == [given], "once, as it was given"


def test_master_starts_the_ranks_itself_without_options() -> None:
    run = make_run(mode="direct", binding=CORES)
    assert launch.build_command(run, None) == [
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


def test_custom_command_may_include_the_launchers_line() -> None:
    wrapped = make_run(args=["time", "$(LAUNCH)", "a", "b"], mode="custom", binding=CORES)
    line = launch.build_command(make_run(args=["a", "b"], binding=CORES), mpi.OPEN_MPI_4)
    assert launch.build_command(wrapped, mpi.OPEN_MPI_4) == ["time", *line]


def test_custom_command_in_an_image_without_an_mpi_has_the_line_of_direct() -> None:
    wrapped = make_run(args=["time", "$(LAUNCH)", "a", "b"], mode="custom", binding=CORES)
    line = launch.build_command(make_run(mode="direct", args=["a", "b"], binding=CORES), None)
    assert launch.build_command(wrapped, None) == ["time", *line]


@pytest.mark.parametrize(
    "run", [make_run(mode="direct"), make_run(mode="custom", args=["$(LAUNCH)"])], ids=str
)
def test_modes_without_mpirun_need_no_mpi(tmp_path: Path, run: Run) -> None:
    assert launch.select_mpi(run, {"PATH": str(tmp_path)}) is None


def test_mode_mpirun_needs_an_mpi(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        launch.select_mpi(make_run(), {"PATH": str(tmp_path)})


def test_ranks_of_an_mpi_program_are_not_started_without_an_mpi(tmp_path: Path) -> None:
    """Each of them would train alone."""
    environment = {"PATH": str(tmp_path), "HVD_FRAMEWORK": "mpi"}
    with pytest.raises(ConfigurationError):
        launch.select_mpi(make_run(mode="custom", args=["$(LAUNCH)", "python", "t"]), environment)
    own = make_run(mode="custom", args=["./run.sh"])
    assert launch.select_mpi(own, environment) is None


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
def test_each_mpi_finds_the_workers_in_a_command_of_the_users_own(
    variable: str, mode: str, is_named: bool
) -> None:
    """The chart's own command line names the host file by an option, or in another way."""
    environment = launch.build_environment(make_run(mode=mode), {})
    assert environment.get(variable) == ("/horovod/generated/hostfile" if is_named else None)
