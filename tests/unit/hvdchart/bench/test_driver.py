"""The driver of `hvdchart bench` and `tune`, with the launcher's line as the master builds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvd_pods.master import launch, mpi
from hvdchart.run import driver
from tests.unit.hvd_pods.runs import make_run

MPIS = [mpi.OPEN_MPI_4, mpi.OPEN_MPI_5, mpi.INTEL_MPI, mpi.MPICH]


@pytest.mark.parametrize("implementation", MPIS, ids=lambda mpi: mpi.name)
def test_the_masters_line_is_cut_to_the_first_hosts(
    implementation: mpi.MpiImplementation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")
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
