"""Where a rank is, on which CPUs, and that it runs the script there or says why not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_pods.common.binding import Binding, BindingError
from hvd_pods.rank import child_rank, ranks, start

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
GLOO = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "8",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
}
PROGRAM = Path(start.__file__)


@pytest.mark.parametrize("variables", [OPEN_MPI, HYDRA, GLOO], ids=["Open MPI", "Hydra", "Gloo"])
def test_place_is_read_from_the_variables_of_each_launcher(variables: dict[str, str]) -> None:
    place = start.find_place({**variables, "PATH": "/bin"})
    assert place == start.Place(rank=3, size=8, local_rank=1, local_size=2)
    assert start.find_problem(place, 8, "2") is None


@pytest.mark.parametrize("missing", OPEN_MPI)
def test_place_is_unknown_unless_all_four_variables_are_set(missing: str) -> None:
    variables = {name: value for name, value in OPEN_MPI.items() if name != missing}
    assert start.find_place(variables) is None
    assert start.find_place({**variables, **HYDRA}) == start.Place(3, 8, 1, 2)


@pytest.mark.parametrize(
    ("changes", "ranks", "slots", "words"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 8, "2", "2 ranks, but the hosts' slots add up to 8"),
        ({"OMPI_COMM_WORLD_SIZE": "9"}, 8, "2", "9 ranks, but the hosts' slots add up to 8"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, 8, "2", "8 ranks were started on this host"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, 8, "2", "1 ranks were started on this host"),
        ({}, 8, None, "not a worker"),
        ({}, 0, None, "not a worker"),
    ],
)
def test_rank_in_a_wrong_place_is_a_problem(
    changes: dict[str, str], ranks: int, slots: str | None, words: str
) -> None:
    assert words in str(start.find_problem(start.find_place({**OPEN_MPI, **changes}), ranks, slots))


@pytest.mark.parametrize("ranks", [0, 8])
def test_rank_of_an_unknown_launcher_is_a_problem(ranks: int) -> None:
    assert "no known launcher" in str(start.find_problem(None, ranks, "2"))


def test_elastic_rank_may_have_any_place() -> None:
    assert start.find_problem(start.Place(0, 3, 0, 1), 0, "2") is None


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_name_every_cpu_once(cpus: set[int]) -> None:
    named: list[int] = []
    for part in start.format_cpus(cpus).split(","):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(cpus)


def test_cpu_lists_join_neighbours() -> None:
    assert start.format_cpus({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11"


def test_arguments_of_a_rank_end_where_its_command_begins() -> None:
    words = "--bind-to core --cores-per-rank 3 --ranks-per-socket 2 8 python --bind-to x -- -h"
    arguments = start.parse_arguments(words.split())
    assert (arguments.binding, arguments.ranks) == (Binding("core", 3, 2), 8)
    assert arguments.command == ["python", "--bind-to", "x", "--", "-h"]


def test_arguments_without_a_binding_ask_for_none() -> None:
    arguments = start.parse_arguments(["0", "python", "-c", "1"])
    assert arguments.command == ["python", "-c", "1"]
    assert arguments.binding == Binding() == ("none", 0, 0)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of rank 3 of 8, one of two on its host."""
    for name in (*HYDRA, *GLOO, "PMI_FD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**OPEN_MPI, "HVD_SLOTS": "2"}.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


@pytest.mark.usefixtures("worker")
def test_prepare_binds_the_rank_by_its_number_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Binding, int]] = []
    monkeypatch.setattr(start, "bind", lambda *arguments: calls.append(arguments))
    words = ["--bind-to", "core", "--cores-per-rank", "3", "--ranks-per-socket", "2", "8", "true"]
    place, problem = start.prepare(start.parse_arguments(words))
    assert (place, problem) == (start.Place(3, 8, 1, 2), None)
    assert calls == [(Binding("core", 3, 2), 1)]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["9", "true"], "add up to 9"),
        (["8", "no-such-command"], "'no-such-command' is not on PATH"),
    ],
)
def test_prepare_binds_nothing_when_there_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str
) -> None:
    monkeypatch.setattr(start, "bind", lambda *_: pytest.fail("bound"))
    assert problem in str(start.prepare(start.parse_arguments(words))[1])


@pytest.mark.usefixtures("worker")
def test_prepare_reports_the_first_problem_only() -> None:
    arguments = start.parse_arguments(["9", "no-such-command"])
    assert "add up to 9" in str(start.prepare(arguments)[1])


@pytest.mark.usefixtures("worker")
def test_prepare_reports_a_binding_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BindingError("too few cores")

    monkeypatch.setattr(start, "bind", refuse)
    assert start.prepare(start.parse_arguments(["8", "true"]))[1] == "too few cores"


def start(
    worker: dict[str, str], *words: str, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run rank.py as a launcher does; `before` is a program that becomes it."""
    return subprocess.run(
        [*before, sys.executable, "-I", str(PROGRAM), *words],
        env=worker, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_rank_says_where_it_is_and_runs_the_script(worker: dict[str, str]) -> None:
    cpu = str(max(os.sched_getaffinity(0)))
    script = ["sh", "-c", "echo $0; grep Cpus_allowed_list /proc/self/status; exit 5", "script"]
    done = start(worker, "8", *script, before=["taskset", "-c", cpu])
    assert done.returncode == 5, done.stderr
    assert done.stdout.splitlines() == [
        f"[hvd] rank 3 of 8 on {socket.gethostname()}, CPUs {cpu}",
        "script",
        f"Cpus_allowed_list:\t{cpu}",
    ]


def test_rank_with_a_problem_ends_with_78_and_names_its_host(worker: dict[str, str]) -> None:
    done = start(worker, "9", "echo", "started")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith(f"[hvd] error: {socket.gethostname()}: the launcher started 8")


def test_rank_outside_of_a_worker_does_not_start_the_script(worker: dict[str, str]) -> None:
    del worker["HVD_SLOTS"]
    done = start(worker, "8", "echo", "started")
    assert (done.returncode, done.stdout) == (78, "")
    assert "ignored its host list" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "received"),
    [
        (["8", "sh", "-c", "exit 5"], 5, b"cmd=abort exitcode=5\n"),
        (["9", "true"], 78, b"cmd=abort exitcode=78\n"),
        (["8", "true"], 0, b""),
    ],
)
def test_rank_under_hydra_ends_the_run_when_it_fails(
    worker: dict[str, str], words: list[str], code: int, received: bytes
) -> None:
    reader, writer = os.pipe()
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), *words],
        env={**worker, **HYDRA, "PMI_FD": str(writer)}, pass_fds=[writer],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert (done.returncode, pipe.read()) == (code, received)


@pytest.mark.parametrize(
    ("number", "asked", "status", "reported"),
    [("0", True, 0, 143), ("0", True, 5, 5), ("0", False, 0, 0), ("8", True, 0, 0)],
    ids=["elastic", "failed", "finished", "not elastic"],
)
@pytest.mark.usefixtures("worker")
def test_elastic_rank_that_was_asked_to_leave_does_not_end_the_training_of_the_others(
    number: str,
    asked: bool,
    status: int,
    reported: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(command: Sequence[str], started: Callable[[int], None]) -> int:
        started(os.getpid())
        script = ranks.find(3)
        assert script is not None
        monkeypatch.setattr(ranks, "was_asked_to_end", lambda one: asked and one == script)
        return status

    monkeypatch.setattr(child_rank, "run", run)
    monkeypatch.setattr(ranks, "FOLDER", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["rank.py", number, "true"])
    monkeypatch.setenv("HVD_NOTICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert start.main() == reported
