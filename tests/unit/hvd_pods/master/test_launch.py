"""The launcher's command line and environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common.errors import ConfigurationError
from hvd_pods.common.run import Run
from hvd_pods.master import launch, mpi
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


@pytest.mark.parametrize("implementation", HOSTS, ids=by_name)
def test_mpirun_names_the_ranks_of_lines_where_that_is_asked_for(
    implementation: mpi.MpiImplementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only here is it known whose mpirun the image has."""
    monkeypatch.setenv("HVD_TAG_OUTPUT", "1")
    own = list(implementation.tags)
    line = launch.build_command(make_run(), implementation)
    assert [word for word in line if word in own] == own
    given = "-l" if implementation.hydra else "--tag-output"
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


def make_line(line: str) -> Run:
    """A run whose command the chart takes for a line of horovodrun."""
    return make_run(mode="direct", args=line.split(), is_horovodrun_line=True)


def test_master_takes_a_line_of_horovodrun(capsys: pytest.CaptureFixture[str]) -> None:
    line = "horovodrun -np 8 -H a:8 --cycle-time-ms 2.5 --timeline-filename /t python train.py"
    run = make_line(line)
    launch.check_line(run)
    logged = capsys.readouterr().out
    assert "HOROVOD_CYCLE_TIME=2.5" in logged
    assert "-H a:8" in logged
    command = launch.build_command(run, None)
    own = ["HOROVOD_CYCLE_TIME=2.5", "HOROVOD_TIMELINE=/t"]
    assert command[4:] == ["/horovod/generated/hostfile", *own, "8", "python", "train.py"]
    # An attempt on fewer workers has fewer ranks than the line.
    fewer = launch.build_command(run.with_ranks_on(run.workers[:2]), None)
    assert fewer[-3:] == ["4", "python", "train.py"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("horovodrun -np two python t.py", "-np two.*whole number"),
        ("horovodrun --min-np 2 python t.py", "--min-np.*worker.minimum"),
    ],
)
def test_line_of_horovodrun_that_cannot_be_taken_is_refused(line: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        launch.check_line(make_line(line))


def test_ranks_are_the_charts_whatever_the_line_says(capsys: pytest.CaptureFixture[str]) -> None:
    """`hvdchart scale` and an upgrade change the number of workers alone."""
    run = make_line("horovodrun -np 4 python t.py")
    launch.check_line(run)
    assert re.search(r"8 ranks.*\n.*-np 4 is left out", capsys.readouterr().out)
    assert launch.build_command(run, None)[-3:] == ["8", "python", "t.py"]


@pytest.mark.parametrize(
    ("run", "framework"),
    [
        (make_line("horovodrun t"), "horovod"),
        (make_run(mode="direct", args=["t"]), "torch"),
        (make_run(mode="custom", args=["horovodrun", "t"]), "torch"),
    ],
    ids=["a line", "a script", "a command"],
)
def test_line_of_horovodrun_gets_what_horovod_needs(run: Run, framework: str) -> None:
    """Without it, ranks of Horovod would not meet: their store is the launcher's."""
    environment = launch.build_environment(run, {"HVD_FRAMEWORK": "torch"})
    assert environment["HVD_FRAMEWORK"] == framework


def test_custom_command_keeps_its_horovodrun() -> None:
    run = make_run(mode="custom", args=["horovodrun", "--min-np", "$(NP)", "t"])
    launch.check_line(run)
    assert launch.build_command(run, None) == ["horovodrun", "--min-np", "8", "t"]


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
