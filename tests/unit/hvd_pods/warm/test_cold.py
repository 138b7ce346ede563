"""A rank that would not see the same world starts cold, and the log has the reason once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from devtools.pods.warm_worker import THREADS
from tests.unit.hvd_pods.warm.worker import Worker, make_worker, warm_up

pytestmark = pytest.mark.slow

PROGRAM = "import os, framework; print('forked' if framework.PID != os.getpid() else 'new')"


def run(worker: Worker, *command: str, **options: Any) -> str:
    """What a rank prints; it must succeed."""
    done = worker.run(*(command or ("python3", "-c", PROGRAM)), **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture
def own_worker() -> Iterator[Worker]:
    """A worker whose modules the test may change."""
    with make_worker() as worker:
        yield worker


def test_threads_that_the_chart_chooses_are_those_of_the_import(own_worker: Worker) -> None:
    environment = {
        name: value for name, value in own_worker.environment().items() if name not in THREADS
    }
    with patch.object(Worker, "environment", lambda self: environment), warm_up(own_worker):
        output = run(own_worker)
    assert "OMP_NUM_THREADS=" in output
    assert output.endswith("forked\n")


def test_variable_that_differs_from_the_workers_is_named(warm_worker: Worker) -> None:
    output = run(warm_worker, variables={"TF_X": "1"})
    assert output.count("cold") == 1
    assert "(TF_X)" in output
    assert output.endswith("new\n")


def test_only_the_first_rank_of_a_worker_reports_the_reason(warm_worker: Worker) -> None:
    second = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_RANK": "1"}
    output = run(warm_worker, variables={"TF_X": "1", **second})
    assert "cold" not in output
    assert output.endswith("new\n")


def test_packages_of_the_code_are_found_by_forks_unless_one_was_imported() -> None:
    """They are installed after the warm process has started."""
    with make_worker() as worker:
        site = worker.root / "code" / ".packages" / "current" / "site"
        paths = {"PYTHONPATH": f"{site}:{worker.modules}"}
        environment = {**worker.environment(), **paths}
        with patch.object(Worker, "environment", lambda self: environment), warm_up(worker):
            site.mkdir(parents=True)
            (site / "late.py").write_text("NAME = 'late'\n")
            program = f"{PROGRAM}; import late; print(late.NAME)"
            assert run(worker, "python3", "-c", program).endswith("forked\nlate\n")
            # A part of a namespace: the fork has the other one.
            (site / "framework").mkdir()
            output = run(worker, "python3", "-c", program)
            assert f" {site}/framework " in output
            assert output.endswith("new\nlate\n")


def test_changed_module_is_not_run_from_memory(own_worker: Worker) -> None:
    with warm_up(own_worker):
        file = own_worker.modules / "framework.py"
        assert run(own_worker).endswith("forked\n")
        file.write_text(file.read_text() + "\n")
        output = run(own_worker)
        assert f" {file} " in output
        assert output.endswith("new\n")


@pytest.mark.parametrize(
    ("module", "reason"),
    [("no_such_module", "ModuleNotFoundError"), ("bad", "SystemExit: 3 (`launch.preload`)")],
)
def test_module_that_cannot_be_imported_is_named_and_ranks_start_cold(
    own_worker: Worker, module: str, reason: str
) -> None:
    (own_worker.modules / "bad.py").write_text("raise SystemExit(3)")
    with warm_up(own_worker, ["framework", module]):
        output = run(own_worker)
        assert f" {module}: {reason}" in output
        assert output.endswith("new\n")


def test_module_with_threads_is_not_forked(own_worker: Worker) -> None:
    """What a thread has locked would stay locked."""
    (own_worker.modules / "busy.py").write_text(
        "import threading\n"
        "for _ in range(2): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    with warm_up(own_worker, ["busy", "framework"]):
        output = run(own_worker)
        # From Python 3.14 on, the kernel knows a thread by the name that Python gave it.
        name = "Thread-1" if sys.version_info >= (3, 14) else "python"
        assert f" 2 threads ({name}" in output
        assert output.endswith("new\n")
