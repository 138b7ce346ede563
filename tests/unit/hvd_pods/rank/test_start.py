"""Where a rank is, on which CPUs, and that it runs the script there or says why not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from devtools.pods.program_copies import copy_files
from hvd_pods.rank import start
from hvd_pods.shared.binding import Binding

LaunchRank = Callable[..., "subprocess.CompletedProcess[str]"]
NUMBERS = {"RANK": "3", "SIZE": "8", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
OPEN_MPI, GLOO = (
    {f"{prefix}_{name}": number for name, number in NUMBERS.items()}
    for prefix in ("OMPI_COMM_WORLD", "HOROVOD")
)
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of rank 3 of 8, one of two on its worker."""
    for name in (*HYDRA, *GLOO, "PMI_FD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**OPEN_MPI, "HVD_SLOTS": "2"}.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The path of start.py in a worker whose folders are all below `tmp_path`."""
    return str(copy_files(tmp_path, sys.executable) / "hvd_pods/rank/start.py")


@pytest.fixture
def launch_rank(program: str) -> LaunchRank:
    """Run start.py as a launcher does; `before` is a program that becomes it."""

    def launch(
        worker: dict[str, str], *words: str, before: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-I", program, *words]
        return subprocess.run(command, env=worker, capture_output=True, text=True, check=False)

    return launch


@pytest.mark.parametrize("variables", [OPEN_MPI, HYDRA, GLOO], ids=["Open MPI", "Hydra", "Gloo"])
def test_place_is_read_from_the_variables_of_each_launcher(variables: dict[str, str]) -> None:
    place = start.find_place({**variables, "PATH": "/bin"})
    assert place == start.RankPlace(rank=3, size=8, local_rank=1, local_size=2)
    assert start.find_problem(place, 8, "2") is None


@pytest.mark.parametrize(
    ("changes", "ranks", "slots", "words"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, 8, "2", "8 ranks"),
        ({}, 0, None, "not a worker"),
        ({"OMPI_COMM_WORLD_RANK": ""}, 8, "2", "launcher"),
    ],
)
def test_rank_in_a_wrong_place_is_a_problem(
    changes: dict[str, str], ranks: int, slots: str | None, words: str
) -> None:
    variables = {name: value for name, value in {**OPEN_MPI, **changes}.items() if value}
    assert words in str(start.find_problem(start.find_place(variables), ranks, slots))


def test_arguments_of_a_rank_end_where_its_command_begins() -> None:
    words = "--bind-to core --cores-per-rank 3 --ranks-per-socket 2 8 python --bind-to x -- -h"
    arguments = start.parse_arguments(words.split())
    assert (arguments.binding, arguments.ranks) == (Binding("core", 3, 2), 8)
    assert arguments.command == ["python", "--bind-to", "x", "--", "-h"]


@pytest.mark.parametrize("number", ["0", "3"])
def test_rank_says_where_it_is_and_runs_the_script(
    worker: dict[str, str], launch_rank: LaunchRank, number: str
) -> None:
    """Rank 0 also says how many threads the ranks have."""
    cpu = str(max(os.sched_getaffinity(0)))
    show = "echo $0 $OMP_NUM_THREADS; grep Cpus_allowed_list /proc/self/status; exit 5"
    variables = {**worker, "OMPI_COMM_WORLD_RANK": number}
    before = ["taskset", "-c", cpu]
    done = launch_rank(variables, "8", "sh", "-c", show, "script", before=before)
    assert done.returncode == 5, done.stderr
    where, *said, ran, bound = done.stdout.splitlines()
    assert where == f"[hvd] rank {number} of 8 on {socket.gethostname()}, CPUs {cpu}"
    assert ["OMP_NUM_THREADS=1 " in line for line in said] == [True] * (number == "0")
    assert (ran, bound) == ("script 1", f"Cpus_allowed_list:\t{cpu}")


def test_rank_in_a_wrong_place_ends_the_run_under_hydra(
    worker: dict[str, str], program: str
) -> None:
    reader, writer = os.pipe()
    done = subprocess.run(
        [sys.executable, "-I", program, "9", "true"],
        env={**worker, **HYDRA, "PMI_FD": str(writer)},
        pass_fds=[writer],
        capture_output=True,
        check=False,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert (done.returncode, pipe.read()) == (78, b"cmd=abort exitcode=78\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["9", "echo"], "the launcher started 8 ranks, but the workers' slots add up to 9"),
        (["8", "no-such-command"], "command 'no-such-command' "),
        (
            ["--bind-to", "core", "--cores-per-rank", "999", "8", "echo"],
            "`launch.binding.coresPerRank` is 999",
        ),
    ],
)
def test_rank_with_a_problem_ends_with_78_and_names_its_worker(
    worker: dict[str, str], launch_rank: LaunchRank, words: list[str], message: str
) -> None:
    done = launch_rank(worker, *words)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith(f"[hvd] error: {socket.gethostname()}: {message}")
