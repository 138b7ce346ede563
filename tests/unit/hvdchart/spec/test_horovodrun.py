"""What becomes of a line of Horovod's launcher."""

from __future__ import annotations

import pytest

from hvdchart.spec import horovodrun


def read(line: str) -> horovodrun.Line:
    return horovodrun.read_line(line.split())


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ("", {}),
        ("--fusion-threshold-mb 32", {"HOROVOD_FUSION_THRESHOLD": "33554432"}),
        ("--fusion-threshold-mb=0", {"HOROVOD_FUSION_THRESHOLD": "0"}),
        ("--cycle-time-ms 2.5", {"HOROVOD_CYCLE_TIME": "2.5"}),
        ("--no-hierarchical-allreduce", {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}),
        ("--timeline-filename /t=1.json", {"HOROVOD_TIMELINE": "/t=1.json"}),
        ("--log-without-timestamp", {"HOROVOD_LOG_HIDE_TIME": "1"}),
        ("--tcp --stall-check", {"NCCL_IB_DISABLE": "1", "HOROVOD_STALL_CHECK_DISABLE": "0"}),
        ("--cache-capacity 1 --cache-capacity 2", {"HOROVOD_CACHE_CAPACITY": "2"}),
        ("--log-level DEBUG", {"HOROVOD_LOG_LEVEL": "DEBUG"}),
    ],
)
def test_options_become_what_horovod_makes_of_them(options: str, variables: dict[str, str]) -> None:
    line = read(f"/opt/bin/horovodrun -np 8 {options} python train.py --tcp -np 2")
    assert line.variables == variables
    assert (line.ranks, line.command) == (8, ("python", "train.py", "--tcp", "-np", "2"))


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ("-H a:1,b:1 -p 22 --gloo --blacklist-cooldown-range 1 2 --", ("sh", "-c", "x")),
        # As argparse takes them, which horovodrun uses.
        ("-Hlocalhost:4 -p22 -i/keys/a=b -hostfile hosts", ("python", "t.py")),
    ],
)
def test_options_without_an_effect_are_left_out(options: str, command: tuple[str, ...]) -> None:
    assert read(f"horovodrun {options} {' '.join(command)}") == (command, {}, None)


@pytest.mark.parametrize(
    "option",
    [
        "--cycle-time-ms fast",
        "--cycle-time-ms nan",
        "--cycle-time-ms inf",
        "--cycle-time-ms=",
        "--cycle-time-ms -1",
        "--fusion-threshold-mb many",
        "--fusion-threshold-mb -1",
        "--cache-capacity -5",
        "--autotune-gaussian-process-noise 1.5",
        "--log-level loud",
        "--log-level debug",
        "--stall-check-warning-time-seconds 1.5",
        "--timeline-filename=",
        "--blacklist-cooldown-range 1 b",
        "--start-timeout soon",
        "-np two",
        "-np 0",
        # -p with the value pn.
        "-ppn",
    ],
)
def test_value_that_horovodrun_refuses_reaches_no_rank(option: str) -> None:
    with pytest.raises(horovodrun.HorovodrunError) as refused:
        read(f"horovodrun --gloo {option} t")
    assert refused.value.index == 2
    assert option in refused.value.problem


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ("--gloo=1 t", "--gloo"),
        ("--cycle-time-ms", "--cycle-time-ms VALUE"),
        ("--blacklist-cooldown-range=1 2 t", "--blacklist-cooldown-range VALUE VALUE"),
    ],
)
def test_option_with_too_few_or_many_values_is_refused_with_its_form(
    options: str, form: str
) -> None:
    with pytest.raises(horovodrun.HorovodrunError) as refused:
        read(f"horovodrun {options}")
    assert (refused.value.index, refused.value.instead) == (1, form)


@pytest.mark.parametrize(
    ("options", "index", "instead"),
    [
        ("--gloo --min-np 2 t", 2, "nodes[].minimum"),
        ("--host-discovery-script d.sh t", 1, "nodes[].minimum"),
        ("--network-interfaces eth0 t", 1, "nodes[].interface"),
        ("--mpi t", 1, "launch.mode: mpirun"),
        ("--config-file a t", 1, "the options that stand for its settings"),
        ("--zoom t", 1, "launch.mode: custom"),
        ("-vx t", 1, "launch.mode: custom"),
        ("--gloo", 0, "command"),
    ],
)
def test_option_that_cannot_be_taken_is_refused_with_a_remedy(
    options: str, index: int, instead: str
) -> None:
    with pytest.raises(horovodrun.HorovodrunError) as refused:
        read(f"horovodrun {options}")
    assert refused.value.index == index
    assert instead in refused.value.instead
