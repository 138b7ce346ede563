"""Planner and pods judge launch.options alike, by launcher_options.json."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from hvd_pods.master import launch, mpi
from hvd_pods.shared.errors import ConfigurationError
from tests.support import launch_cases
from tests.support.launch_cases import Case
from tests.support.runs import make_run


@pytest.fixture(autouse=True)
def pod_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")


def pod_refuses(case: Case, implementation: mpi.MpiImplementation) -> bool:
    try:
        launch.build_command(case.run(), implementation)
    except ConfigurationError:
        return True
    return False


@pytest.mark.parametrize(
    ("options", "implementation", "refused"),
    [
        # The 4 MPIs differ in these; the pod alone knows which it has.
        (["-genv", "A", "b"], mpi.OPEN_MPI_4, True),
        (["-genv", "A", "b"], mpi.INTEL_MPI, False),
        (["--prtemca", "a", "b"], mpi.OPEN_MPI_4, True),
        (["--prtemca", "a", "b"], mpi.OPEN_MPI_5, False),
        (["-bind-to", "core"], mpi.INTEL_MPI, True),
        (["-bind-to", "core"], mpi.MPICH, False),
        (["-x", "A"], mpi.OPEN_MPI_5, False),
        (["--no-such-option"], mpi.OPEN_MPI_4, False),
    ],
)
def test_pod_refuses_options_of_another_mpi(
    options: list[str], implementation: mpi.MpiImplementation, refused: bool
) -> None:
    expected = pytest.raises(ConfigurationError, match=r"launch\.options`")
    with expected if refused else nullcontext():
        launch.build_command(make_run(options=options), implementation)


CORES = {"to": "core", "cores_per_rank": 2, "ranks_per_socket": 0}
MPIS = (mpi.OPEN_MPI_4, mpi.OPEN_MPI_5, mpi.INTEL_MPI, mpi.MPICH)


def test_planner_refuses_the_options_that_the_pods_of_every_image_refuse() -> None:
    # Mode direct has no launcher: the chart refuses all options (templates/checks/_launch.tpl).
    cases = [case for case in launch_cases.cases() if case.mode != "direct"]
    hopeless = [case for case in cases if all(pod_refuses(case, mpi) for mpi in MPIS)]
    assert hopeless == [case for case in cases if case.is_refused_by_planner()]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": ["-np", "4"]}, ["-np", "worker.number and worker.slots"]),
        (
            {"options": ["--bind-to=socket"], "binding": CORES},
            ["--bind-to=socket", "`launch.binding.to` is core"],
        ),
    ],
)
def test_pod_names_the_option_and_the_value_that_it_contradicts(
    changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        launch.build_command(make_run(**changes), mpi.OPEN_MPI_4)
    assert [word for word in ["launch.options", *words] if word not in str(refused.value)] == []


def test_binding_in_the_argument_of_an_option_is_no_binding() -> None:
    options = ["--mca", "a", "--bind-to"]
    assert Case("mpirun", tuple(options)).plan().launching.binding.to == "core"
    line = mpi.mpirun_line(make_run(options=options, binding=CORES), mpi.OPEN_MPI_4)
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
