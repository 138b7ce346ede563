"""A worker tells what tests call and which mutants they notice, in real processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from devtools.checks.mutation import pool
from devtools.checks.mutation.mutants import ROOT, Mutant
from devtools.checks.mutation.probes import RecordedTest, add_probes
from devtools.checks.mutation.worker import LOG, TEMPORARY, TESTS, Runner
from tests.unit.devtools.checks.parity import PARITY, SOURCE, mutant

TESTS_OF_IT = """
import subprocess, sys, time
import pytest
from hvdchart import parity
from hvdchart.parity import LIMIT, is_even

@pytest.fixture(scope="module")
def two():
    return is_even(2)

def test_even(): assert is_even(4)
def test_odd(): assert not is_even(5)
def test_limit(two): assert LIMIT == 3
def test_program():
    code = "from hvdchart.parity import is_even; print(is_even(4))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"True\\n"
def test_main():
    import __main__
state = []
def test_first(): state.append(is_even(2))
def test_second(): assert not state
def test_daemon():
    daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    open("daemon", "w").write(str(daemon.pid))
"""
FILE = "tests/unit/hvdchart/test_parity.py"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a worker on a small checkout, with the module as it is given."""
    copy = tmp_path / "copy"
    for folder in (*TESTS, "hvdchart"):
        (copy / folder).mkdir(parents=True)
    (copy / "hvdchart" / "__init__.py").touch()
    (copy / FILE).write_text(TESTS_OF_IT)
    # Like the module in a checkout's copy, a file in the copy.
    (copy / "start.py").write_text(
        "import sys\nfrom devtools.checks.mutation.worker import main\nmain(sys.argv[1])\n"
    )
    (copy / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers = fuzz\n")
    with contextlib.ExitStack() as stack:

        def start(source: str = SOURCE) -> subprocess.Popen[str]:
            (copy / PARITY).write_text(source)
            process = subprocess.Popen(
                [sys.executable, "start.py", str(tmp_path)],
                cwd=copy, env={**os.environ, "PYTHONPATH": f"{copy}:{ROOT}"}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def ask(process: subprocess.Popen[str], **task: Any) -> dict[str, Any]:
    """The answer of a worker; without a task, what it says first."""
    assert process.stdin
    assert process.stdout
    if task:
        print(json.dumps(task), file=process.stdin, flush=True)
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


@pytest.mark.slow
def test_worker_tells_what_each_test_calls_in_whichever_process(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / TEMPORARY).mkdir()
    worker = start(add_probes(PARITY, SOURCE, tmp_path / LOG) + "\nis_even(0)\n")
    assert ask(worker)["imported"] == [f"{PARITY}:6"]
    (tmp_path / TEMPORARY / "left").touch()
    tests = [RecordedTest(**test) for test in ask(worker, file=FILE)["tests"]]
    called = {test.name.partition("::")[2]: bool(test.functions) for test in tests}
    assert called == {
        "test_even": True, "test_odd": True, "test_limit": True, "test_program": True,
        "test_daemon": False, "test_main": False, "test_first": True, "test_second": False,
    }  # fmt: skip
    assert [test.name for test in tests if not test.passed] == [f"{FILE}::test_second"]


@pytest.mark.slow
def test_worker_tells_which_mutants_the_tests_notice(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    worker = start()
    names = ask(worker)["tests"]
    even, odd, limit, program, first, second, main, daemon = (f"{FILE}::test_{n}" for n in
        ("even", "odd", "limit", "program", "first", "second", "main", "daemon"))  # fmt: skip
    assert sorted(names) == sorted([even, odd, limit, program, first, second, main, daemon])

    def attempt(
        change: Mutant | None, *tests: str, fresh: bool = False, seconds: float = 30
    ) -> dict[str, Any]:
        task = {"mutant": change and asdict(change), "fresh": fresh}
        answer = ask(worker, limits=dict.fromkeys(tests, seconds), **task)
        # Where not even the unchanged module is tested in time, it is to take longer.
        if "unsure" in answer:
            return attempt(change, *tests, fresh=fresh, seconds=2 * seconds)
        return answer

    def passes(change: Mutant | None, *tests: str, **options: Any) -> bool:
        return bool(attempt(change, *tests, **options)["passes"])

    sound = [name for name in names if name != second]
    assert passes(None, *sound)
    negated = mutant("Eq_NotEq", "return number == 0")
    assert not passes(negated, odd, even)
    assert not passes(negated, program), "the program reads the changed file"
    above = mutant("Gt_GtE", "while number > 0:")
    assert passes(above, odd, daemon)
    left = int((tmp_path / "copy" / "daemon").read_text())
    assert not psutil.pid_exists(left), "it ends what tests leave running"
    assert attempt(above, odd, even)["by"] == even
    assert not passes(mutant("Sub_Add", "number = number - 2"), even, seconds=0.3), "it hangs"
    constant = mutant("NumberReplacer", "LIMIT = 3")
    assert passes(constant, even, fresh=True)
    assert attempt(constant, even, limit, fresh=True)["by"] == limit
    assert not passes(constant, limit), "no living function changes, so that Python starts anew"
    assert attempt(above, first, second, even)["by"] == even, "the second fails in any case"
    assert passes(None, main, fresh=True)
    assert passes(None, *sound), "everything is as it was"
    assert (tmp_path / "copy" / PARITY).read_text() == SOURCE


def test_changed_module_has_a_time_of_its_own_and_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = Path(PARITY)
    module.parent.mkdir()
    module.write_text(SOURCE)
    before = module.stat().st_mtime_ns
    runner = Runner(io.StringIO(), io.StringIO(), io.StringIO(), tmp_path)
    seconds = {int(module.stat().st_mtime)}
    for _ in range(2):
        with runner.changed(mutant("Eq_NotEq", "return number == 0")) as (_, after):
            assert module.read_text() == after != SOURCE
            seconds.add(int(module.stat().st_mtime))
    assert len(seconds) == 3, "Python would run what it has compiled before"
    assert (module.read_text(), module.stat().st_mtime_ns) == (SOURCE, before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a PID namespace")
def test_defective_programs_see_no_other_processes() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        done = subprocess.run([*pool.isolate(), "kill", str(other.pid)], check=False)
        assert done.returncode == 1
        assert other.poll() is None
        other.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write to /etc")
def test_defective_programs_do_not_write_to_etc() -> None:
    command = [*pool.isolate(), "touch", "/etc/hvd-mutation"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Read-only file system" in done.stderr
    assert not Path("/etc/hvd-mutation").exists()
