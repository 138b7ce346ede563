"""launchers.json, and that planner and pods judge launch.options alike by it."""

from __future__ import annotations

import pytest

from hvd_pods.common.errors import ConfigurationError
from hvd_pods.master import launch, mpi
from tests.unit.hvd_pods.runs import make_run
from tests.unit.launch_cases import Case

IMPLEMENTATIONS = {
    implementation.launcher: implementation
    for implementation in (mpi.OPEN_MPI_4, mpi.OPEN_MPI_5, mpi.INTEL_MPI, mpi.MPICH)
}
BINDINGS = {
    "none": {"to": "none", "coresPerRank": 0, "ranksPerSocket": 0},
    "core": {"to": "core", "coresPerRank": 2, "ranksPerSocket": 0},
    "socket": {"to": "socket", "coresPerRank": 0, "ranksPerSocket": 1},
}


@pytest.fixture(autouse=True)
def pod_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")


def is_refused_by_pod(case: Case, launcher: str) -> bool:
    """Whether the master refuses the options when its image has this launcher."""
    run = make_run(
        mode=case.mode,
        args=["$(LAUNCH)", "python"] if case.mode == "custom" else ["python"],
        options=list(case.options),
        interface=case.interface,
        binding=BINDINGS[case.binding],
        maxRanks=8,
    )
    try:
        launch.build_command(run, IMPLEMENTATIONS.get(launcher, mpi.OPEN_MPI_4))
    except ConfigurationError as error:
        return "launch.options has " in str(error)
    return False


@pytest.mark.parametrize(
    ("options", "launcher", "refused"),
    [
        # The 4 MPIs differ in these; the pod alone knows which it has.
        (["-genv", "A", "b"], "openmpi4", True),
        (["-genv", "A", "b"], "intel", False),
        (["--prtemca", "a", "b"], "openmpi4", True),
        (["--prtemca", "a", "b"], "openmpi5", False),
        (["-bind-to", "core"], "intel", True),
        (["-bind-to", "core"], "mpich", False),
        (["-x", "A"], "openmpi5", False),
        (["--no-such-option"], "openmpi4", False),
    ],
)
def test_pod_refuses_options_of_another_mpi(
    options: list[str], launcher: str, refused: bool
) -> None:
    assert is_refused_by_pod(Case("mpirun", tuple(options)), launcher) == refused


def test_binding_in_the_argument_of_an_option_is_no_binding() -> None:
    options = ["--mca", "a", "--bind-to"]
    assert Case("mpirun", tuple(options)).plan().launching.binding.to == "core"
    line = mpi.mpirun_line(make_run(options=options, binding=BINDINGS["core"]), mpi.OPEN_MPI_4)
    assert "slot:PE=2" in line


def test_master_names_the_interface_or_that_of_the_default_route() -> None:
    named = mpi.master_interface_variables("eth1", "eth0")
    assert named == {
        "OMPI_MCA_btl_tcp_if_include": "eth1",
        "OMPI_MCA_oob_tcp_if_include": "eth1",
        "PRTE_MCA_prte_if_include": "eth1",
        "I_MPI_HYDRA_IFACE": "eth1",
    }
    assert mpi.master_interface_variables("", "eth0") == {"I_MPI_HYDRA_IFACE": "eth0"}
    assert mpi.master_interface_variables("", "") == {}
