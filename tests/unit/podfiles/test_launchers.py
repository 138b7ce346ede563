"""launchers.json, and that planner and pods judge launch.options alike by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common import launcher_options
from hvd_pods.common.errors import ConfigurationError
from hvd_pods.master import launch, mpi
from hvdchart.errors import SpecError
from tests.unit import launch_cases
from tests.unit.launch_cases import Case
from tests.unit.podfiles.runs import make_run

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
        return "launch.options has -" in str(error)
    return False


@pytest.mark.slow
def test_planner_refuses_exactly_the_options_that_every_pod_refuses() -> None:
    verdicts = {False: 0, True: 0}
    for case in launch_cases.cases():
        by_pods = [
            is_refused_by_pod(case, launcher) for launcher in launch_cases.modes()[case.mode]
        ]
        by_planner = case.is_refused_by_planner()
        assert by_planner == all(by_pods), f"{case}: planner {by_planner}, pods {by_pods}"
        verdicts[by_planner] += 1
    assert min(verdicts.values()) > 300, "the cases must have both verdicts"


@pytest.mark.parametrize(
    ("options", "launcher", "refused"),
    [
        # The 4 MPIs differ in these; the pod alone knows which it has.
        (["-genv", "A", "b"], "openmpi4", True),
        (["-genv", "A", "b"], "openmpi5", True),
        (["-genv", "A", "b"], "intel", False),
        (["-genv", "A", "b"], "mpich", False),
        (["--prtemca", "a", "b"], "openmpi4", True),
        (["--prtemca", "a", "b"], "openmpi5", False),
        (["-ppn", "1"], "openmpi5", True),
        (["--mca", "a", "b"], "intel", True),
        (["-bind-to", "core"], "intel", True),
        (["-bind-to", "core"], "mpich", False),
        (["-membind", "firsttouch"], "openmpi4", True),
        (["--report-bindings"], "mpich", True),
        (["-x", "A"], "mpich", True),
        (["-x", "A"], "openmpi5", False),
        (["--no-such-option"], "openmpi4", False),
    ],
)
def test_pod_refuses_options_of_another_mpi(
    options: list[str], launcher: str, refused: bool
) -> None:
    assert is_refused_by_pod(Case("mpirun", tuple(options)), launcher) == refused


@pytest.mark.parametrize(
    ("option", "refused_in"),
    [
        ("--mca", {"horovodrun", "elastic"}),
        ("--gloo", {"mpirun", "custom"}),
        ("--mpi", {"mpirun", "custom", "elastic"}),
        ("--binding-args", {"mpirun", "custom", "elastic"}),
        ("--output-filename", set()),
        ("--verbose", set()),
        ("--np", {"mpirun", "custom", "horovodrun", "elastic"}),
        ("-p", {"mpirun", "custom", "horovodrun", "elastic"}),
        ("--ssh-port=22", {"mpirun", "custom", "horovodrun", "elastic"}),
    ],
)
def test_planner_refuses_an_option_in_the_modes_without_it(
    option: str, refused_in: set[str]
) -> None:
    assert refused_in == {
        mode for mode in launch_cases.modes() if Case(mode, (option,)).is_refused_by_planner()
    }


@pytest.mark.parametrize(
    ("case", "path", "words"),
    [
        (Case("mpirun", ("-v", "-np", "4")), "launch.options[1]", ["'np'", "worker.number"]),
        (
            Case("horovodrun", ("--mca", "a", "b")),
            "launch.options[0]",
            ["'mca'", "launch.mode horovodrun", "mpirun or custom"],
        ),
        (Case("mpirun", ("-x", "A", "-genv", "B", "c")), "launch.options[2]", ["'genv'", "no MPI"]),
        (
            Case("horovodrun", ("--network-interface=a",), interface="eth1"),
            "launch.options[0]",
            ["'network-interface'", "eth1"],
        ),
        (
            Case("mpirun", ("--npersocket", "1"), binding="core"),
            "launch.options[0]",
            ["'npersocket'", "tuning.binding is core"],
        ),
    ],
    ids=str,
)
def test_planner_names_the_option_and_what_it_contradicts(
    case: Case, path: str, words: list[str]
) -> None:
    with pytest.raises(SpecError) as refused:
        case.plan()
    assert refused.value.path == path
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "launcher", "words"),
    [
        ({"options": ["--np=4"]}, "mpich", ["--np=4", "worker.number and worker.slots"]),
        ({"options": ["-genv"]}, "openmpi4", ["-genv", "Open MPI 4", "launch.binding"]),
        (
            {"options": ["--network-interfaces"], "interface": "eth1", "mode": "horovodrun"},
            "horovodrun",
            ["--network-interfaces", "network.interface is eth1"],
        ),
        (
            {"options": ["--map-by"], "binding": BINDINGS["core"]},
            "openmpi5",
            ["--map-by", "launch.binding.to is core"],
        ),
    ],
)
def test_pod_names_the_option_and_what_it_contradicts(
    changes: dict[str, Any], launcher: str, words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        launcher_options.check_options(make_run(**changes), launcher)
    for word in ["launch.options has", *words]:
        assert word in str(refused.value)


@pytest.mark.slow
def test_options_that_bind_leave_the_planner_without_a_binding() -> None:
    binding = {
        n for n in launch_cases.names() if launcher_options.find_option(f"-{n}").get("binding")
    }
    assert {"bind-to", "map-by", "npersocket", "rankfile", "cpu-set", "binding-args"} <= binding
    for name in launch_cases.names():
        case = Case("horovodrun" if name == "binding-args" else "mpirun", (f"--{name}",))
        if not case.is_refused_by_planner():
            to = case.plan().launching.binding.to
            assert to == ("none" if name in binding else "core"), name


@pytest.mark.parametrize("argument", ["-np", "--np", "--np=4", "-np=4", "-n", "-c", "--num-proc=2"])
def test_find_option_reads_every_form_of_an_option(argument: str) -> None:
    assert launcher_options.find_option(argument)["value"] == "worker.number and worker.slots"


@pytest.mark.parametrize(
    ("options", "mode", "refused"),
    [
        (("--mca", "plm_rsh_args", "-q"), "mpirun", False),
        (("--mca", "plm_rsh_args", "-np"), "mpirun", False),
        (("--mca", "plm_rsh_args", "-q", "-np"), "mpirun", True),
        (("--tune", "--np"), "mpirun", False),
        (("--tune=a", "--np"), "mpirun", True),
        (("-x", "A", "-np"), "mpirun", True),
        (("--start-timeout", "--mca"), "horovodrun", False),
        (("--start-timeout=5", "--mca"), "horovodrun", True),
        (("--no-such-option", "--np"), "mpirun", True),
    ],
)
def test_the_argument_of_an_option_is_not_judged_as_an_option(
    options: tuple[str, ...], mode: str, refused: bool
) -> None:
    case = Case(mode, options)
    assert case.is_refused_by_planner() == refused
    assert is_refused_by_pod(case, launch_cases.modes()[mode][0]) == refused


def test_binding_in_the_argument_of_an_option_is_no_binding() -> None:
    options = ["--mca", "a", "--bind-to"]
    assert Case("mpirun", tuple(options)).plan().launching.binding.to == "core"
    line = mpi.mpirun_line(make_run(options=options, binding=BINDINGS["core"]), mpi.OPEN_MPI_4)
    assert "slot:PE=2" in line


@pytest.mark.parametrize("argument", ["np", "np=-np", "", "-", "--", "--npx", "-Np", "=--np"])
def test_find_option_finds_nothing_in_values_and_unknown_options(argument: str) -> None:
    assert launcher_options.find_option(argument) == {}


def test_data_file_has_each_name_once_and_only_known_launchers() -> None:
    data = json.loads(
        Path(launcher_options.__file__).with_name("launcher_options.json").read_text()
    )
    every_name = launch_cases.names()
    assert sorted(every_name) == sorted(set(every_name))
    assert not [name for name in every_name if name.startswith("-") or "=" in name]
    known = set(data["launchers"])
    assert {
        launcher for launchers_of in data["modes"].values() for launcher in launchers_of
    } == known
    assert set(IMPLEMENTATIONS) | {"horovodrun", "elastic"} == known
    for option in data["options"]:
        assert set(option) <= {"names", "readBy", "arguments", "value", "binding", "interface"}
        assert set(option.get("readBy", known)) <= known
        assert option["arguments"] in (0, 1, 2)
        assert option.get("binding", "binds") in ("binds", "maps")
    assert {*data["connections"]["tree"], *data["connections"]["perRank"]} <= known
    for variable in data["interfaceVariables"]:
        assert set(variable) <= {"name", "setOn", "unlessTransport", "always"}
        assert set(variable["setOn"]) <= {"workers", "groups", "master"}
    assert all(len(variables) == 4 for variables in data["rankVariables"].values())


def test_master_names_the_interface_or_that_of_the_default_route() -> None:
    named = launcher_options.master_interface_variables("eth1", "eth0")
    assert named == {
        "OMPI_MCA_btl_tcp_if_include": "eth1",
        "OMPI_MCA_oob_tcp_if_include": "eth1",
        "PRTE_MCA_prte_if_include": "eth1",
        "I_MPI_HYDRA_IFACE": "eth1",
    }
    assert launcher_options.master_interface_variables("", "eth0") == {"I_MPI_HYDRA_IFACE": "eth0"}
    assert launcher_options.master_interface_variables("", "") == {}
