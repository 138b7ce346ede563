"""The driver of `hvdchart bench` and `tune`, with the launcher's line as the master builds it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master import launch, mpi
from hvdchart.run import driver
from tests.unit.hvd_pods.runs import make_run

MPIS = [mpi.OPEN_MPI_4, mpi.OPEN_MPI_5, mpi.INTEL_MPI, mpi.MPICH]
# Starts one rank here, if its line and host file are consistent, and tells it how many they are.
LAUNCHER = """#!/bin/sh
test "$1" = -np || exit 9
ranks=$2
hosts=$(grep -c . "$4")
test "$5" = rank && test "$6" = "$ranks" || exit 8
shift 6
RANKS=$ranks HOSTS=$hosts exec "$@"
"""
RANK = """
import json, os
ranks, hosts = int(os.environ["RANKS"]), int(os.environ["HOSTS"])
assert ranks == 2 * hosts, (ranks, hosts)
if hosts == 3:
    raise SystemExit("x" * 900 + "broken on three")
print("round 1")
factor = float(os.environ.get("FACTOR", 1))
print("RESULT", json.dumps({"imagesPerSecond": hosts * 10.0 * factor}))
"""


@pytest.fixture(autouse=True)
def pod_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")


@pytest.mark.parametrize("implementation", MPIS, ids=lambda mpi: mpi.name)
def test_the_masters_line_is_cut_to_the_first_hosts(
    implementation: mpi.MpiImplementation, tmp_path: Path
) -> None:
    args = ["python3", "driver.py", "{}", "$(HOSTFILE)", "$(LAUNCH)"]
    run = make_run(mode="custom", args=args)
    _, _, _, hostfile, *line = launch.build_command(run, implementation)
    assert hostfile in line, "the driver replaces it by its own"
    file = tmp_path / "hostfile"
    addresses = {host: host.address for host in run.hosts}
    file.write_text(mpi.format_hostfile(run, addresses, implementation))
    cut, ranks, hosts = driver.on_first_hosts(line, str(file), 1)
    slots = run.hosts[0].slots
    assert (ranks, hosts) == (slots, file.read_text().splitlines()[0] + "\n")
    changed = {index for index, word in enumerate(cut) if word != line[index]}
    assert changed == {line.index("-np") + 1, len(line) - 1}
    assert cut[-1] == cut[cut.index("-np") + 1] == str(slots)
    assert driver.on_first_hosts(line, str(file), len(run.hosts))[:2] == (line, run.ranks)


def drive(tmp_path: Path, *trials: dict[str, Any]) -> tuple[int, list[Any], str]:
    """Run the driver on three hosts; its exit code, its measurements and all of its output."""
    launcher, hostfile = tmp_path / "mpirun", tmp_path / "hosts"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    hostfile.write_text("".join(f"h{n}.s slots=2\n" for n in range(3)))
    job = {"trials": trials, "command": [sys.executable, "-c", RANK]}
    line = [str(launcher), "-np", "6", "--hostfile", str(hostfile), "rank", "6"]
    done = subprocess.run(
        [sys.executable, driver.__file__, json.dumps(job), str(hostfile), *line],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [each for each in done.stdout.splitlines() if each.startswith("MEASURED ")]
    return done.returncode, [json.loads(each[9:]) for each in lines], done.stdout


@pytest.mark.slow
def test_each_trial_is_measured_on_its_workers_with_its_environment(tmp_path: Path) -> None:
    trials: list[dict[str, Any]] = [
        {"workers": 2, "env": {}}, {"workers": 1, "env": {"FACTOR": "3"}}, {"workers": 3, "env": {}}
    ]  # fmt: skip
    code, measured, output = drive(tmp_path, *trials)
    assert code == 0, output
    assert [(each["trial"], each["ranks"], each["speed"]) for each in measured] == [
        (0, 4, 20.0), (1, 2, 30.0), (2, 6, None),
    ]  # fmt: skip
    error = measured[-1]["error"]
    assert error.startswith("exit code 1: ")
    assert error.endswith("xbroken on three\n")
    assert len(error) == len("exit code 1: ") + 800, "the end of the output"
    assert drive(tmp_path, trials[-1])[0] == 1, "no trial has a speed"


@pytest.mark.parametrize(
    ("output", "speed"),
    [
        ('x\n[1,0]<stdout>RESULT {"imagesPerSecond": 7}\nbye\n', 7),
        ('RESULT {"imagesPerSecond": null}', None),
        ("RESULT {broken", None),
        ('RESULT {"other": 1}', None),
        ("nothing", None),
    ],
)
def test_a_result_without_a_speed_is_none(output: str, speed: float | None) -> None:
    assert driver.parse_speed(output) == speed
