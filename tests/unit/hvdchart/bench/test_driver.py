"""The driver of `hvdchart bench`, with the launcher's line as the master builds it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_pods.master import launch, mpi
from hvdchart.bench import driver
from tests.support.runs import make_run

MPIS = [mpi.OPEN_MPI_4, mpi.OPEN_MPI_5, mpi.INTEL_MPI, mpi.MPICH]


class Line:
    """The master's line for a run, as the driver gets it, and the host file."""

    def __init__(self, implementation: mpi.MpiImplementation | None, folder: Path) -> None:
        args = ["python3", "driver.py", "{}", "$(HOSTFILE)", "$(LAUNCH)"]
        self.run = make_run(mode="custom", args=args)
        _, _, _, self.hostfile, *self.words = launch.build_command(self.run, implementation)
        self.file = folder / "hostfile"
        addresses = {worker: worker.address for worker in self.run.workers}
        self.file.write_text(mpi.format_hostfile(addresses, implementation))


@pytest.fixture(params=MPIS, ids=lambda mpi: mpi.name)
def line(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")
    return Line(request.param, tmp_path)


def test_the_masters_line_and_its_host_file_are_cut_to_the_first_hosts(line: Line) -> None:
    """Of the line, only the numbers of ranks change: the driver replaces the host file."""
    assert line.hostfile in line.words
    cut, ranks, hosts = driver.on_first_hosts(line.words, str(line.file), 1)
    first = line.file.read_text().splitlines()[0]
    assert (ranks, hosts) == (line.run.workers[0].slots, first + "\n")
    changed = {index for index, word in enumerate(cut) if word != line.words[index]}
    assert changed == {line.words.index("-np") + 1, len(line.words) - 1}
    assert cut[-1] == cut[cut.index("-np") + 1] == str(ranks)


def test_without_an_mpi_only_the_end_of_the_line_has_the_ranks(tmp_path: Path) -> None:
    line = Line(None, tmp_path)
    cut, ranks, _ = driver.on_first_hosts(line.words, str(line.file), 1)
    assert ranks == line.run.workers[0].slots
    assert cut == [*line.words[:-1], str(ranks)]


def test_the_masters_line_stays_for_all_hosts(line: Line) -> None:
    hosts = len(line.run.workers)
    words, ranks, _ = driver.on_first_hosts(line.words, str(line.file), hosts)
    assert (words, ranks) == (line.words, line.run.ranks)


@pytest.mark.parametrize(
    ("output", "speed"),
    [
        ('x\n[1,0]<stdout>RESULT {"samplesPerSecond": 7}\nbye\n', 7),
        ('RESULT {"samplesPerSecond": null}', None),
        ("RESULT {broken", None),
        ('RESULT {"other": 1}', None),
        ("nothing", None),
    ],
)
def test_the_speed_is_read_from_the_output(output: str, speed: float | None) -> None:
    assert driver.parse_speed(output) == speed


@pytest.mark.timeout(30)
def test_the_output_of_a_trial_is_printed_as_it_comes(tmp_path: Path) -> None:
    """A line of it that looks like an outcome is none."""
    hosts = tmp_path / "hostfile"
    hosts.write_text("a slots=2\n")
    script = "echo MEASURED; read go; echo $go; exit 3"
    job = json.dumps({"command": ["sh", "-c", script], "trials": [1]})
    line = [job, str(hosts), "sh", "-c", 'exec "$@"', "2"]
    with subprocess.Popen(
        [sys.executable, driver.__file__, *line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "trial 0: MEASURED\n"
        rest, _ = process.communicate("go\n")
    assert process.returncode == 1
    second, outcome = rest.splitlines()
    assert second == "trial 0: go"
    measured = json.loads(outcome.split(" ", 1)[1])
    assert measured["speed"] is None
    assert "exit code 3" in measured["error"]
