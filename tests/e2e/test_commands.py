"""The daily commands on a real cluster: one run, from doctor to its end.

Each fixture brings the run into a state, from that of the fixture before it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.toolchain.tools import tool
from tests.e2e.command import hvdchart, namespace_options, write_spec
from tests.support.namespace import Namespace
from tests.support.wheels import make_wheel

STEPS = 6000
SECRET = "0123456789abcdef"
# Reports its steps until each rank finds a file in its own container.
TRAIN = f"""
import os, time
from pathlib import Path
import hvdleaf
import hvd_progress
for step in range(1, {STEPS}):
    hvd_progress.report(step, steps={STEPS}, loss=1 / step, samples_per_second=8, every=0.1)
    print("step", step, time.time(), flush=True)
    if Path("/tmp/go").exists():
        break
    time.sleep(0.1)
"""


@dataclass(frozen=True)
class Run:
    """The run `hvd`, as the daily commands see it."""

    namespace: Namespace
    code: Path
    spec: str

    def ask(self, command: str, *arguments: str, code: int = 0) -> str:
        """What a command prints that needs no Helm; it must end with this exit code."""
        where = ("--namespace", self.namespace.name)
        return hvdchart(self.namespace, command, *where, *arguments, code=code).stdout

    def change(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that may use Helm, and must succeed."""
        return hvdchart(self.namespace, command, *namespace_options(self.namespace), *arguments)

    def progress(self) -> Any:
        """The progress in the run's record; None before the first step."""
        return json.loads(self.ask("status", "hvd", "-o", "json"))["progress"]

    def wait_for_steps(self) -> None:
        wait_until(self.progress, 180, "the record has a step", PROGRAM_PAUSE)


@contextmanager
def page_of(run: Run) -> Iterator[Iterator[Any]]:
    """The views that the page of the run gets, while it is served."""
    command = [sys.executable, "-m", "hvdchart", "watch", "hvd", "--web", "-n", run.namespace.name]
    with subprocess.Popen(
        command, env=run.namespace.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            with urllib.request.urlopen(f"{address}events", timeout=60) as answer:  # noqa: S310 - of this machine
                lines = (line for line in answer if line.startswith(b"data: "))
                yield (json.loads(line.removeprefix(b"data: ")) for line in lines)
        finally:
            process.terminate()


@pytest.fixture(scope="class")
def written(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A spec and its code, and kubectl on PATH, as people have it."""
    folder = tmp_path_factory.mktemp("run")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(tool("kubectl"))
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    # What train.py imports comes from requirements.txt; pods reach no package index here.
    wheel = make_wheel(code, "hvdleaf")
    (code / "requirements.txt").write_text(f"./{wheel.name}\n")
    command = ["python3", "train.py"]
    env = {"TRACKER_TOKEN": SECRET, "HVD_TAG_OUTPUT": "1"}
    train = {"command": command, "backoffLimit": 0, "env": env}
    spec = write_spec(folder, namespace, command, train=train)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs), prepend=":")
        yield Run(namespace, code, spec)


@pytest.fixture(scope="class")
def running(written: Run) -> Run:
    """Two ranks train."""
    written.change("deploy", written.spec, "--code", str(written.code), "--detach")
    written.wait_for_steps()
    return written


@pytest.fixture(scope="class")
def stopped(running: Run) -> Run:
    """The run has no pods."""
    running.change("stop", "hvd")
    running.namespace.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=180s")
    return running


@pytest.fixture(scope="class")
def restarted(stopped: Run) -> Run:
    """Two ranks train again."""
    stopped.change("restart", "hvd")
    stopped.wait_for_steps()
    return stopped


@pytest.fixture(scope="class")
def scaled(restarted: Run) -> Run:
    """One rank trains alone."""
    restarted.change("scale", "hvd", "1")
    wait_until(
        lambda: (restarted.progress() or {}).get("samples_per_second") == 8.0,
        180,
        "one rank trains alone",
        PROGRAM_PAUSE,
    )
    return restarted


@pytest.fixture(scope="class")
def ending(scaled: Run) -> Run:
    """The rank was asked to end."""
    scaled.ask("exec", "hvd", "0", "--", "touch", "/tmp/go")
    return scaled


@pytest.fixture(scope="class")
def finished(ending: Run) -> Run:
    """The run has finished."""
    ending.ask("wait", "hvd", "--timeout", "180s")
    return ending


class TestDailyCommands:
    def test_doctor_lets_the_spec_pass(self, written: Run) -> None:
        written.change("doctor", written.spec)

    def test_progress_is_that_of_both_ranks(self, running: Run) -> None:
        shown = running.progress()
        assert shown["steps"] == STEPS
        assert shown["samples_per_second"] == 16.0

    def test_status_shows_the_progress(self, running: Run) -> None:
        line = rf"progress: step \d+ of {STEPS}, loss .*16 samples/s"
        assert re.search(line, running.ask("status", "hvd"))

    def test_events_are_those_of_the_run(self, running: Run) -> None:
        assert "Job/hvd-master-" in running.ask("events", "hvd")

    def test_logs_of_one_rank_have_no_line_of_another(self, running: Run) -> None:
        lines = running.ask("logs", "hvd", "--no-follow", "--rank", "1").splitlines()
        assert lines[-1].startswith("[rank 1] step ")
        assert all(line.startswith("[rank 1] ") for line in lines)

    def test_exec_runs_in_the_pod_of_a_rank(self, running: Run) -> None:
        assert running.ask("exec", "hvd", "1", "--", "hostname") == "hvd-worker-1\n"

    def test_stack_shows_the_line_of_the_script(self, running: Run) -> None:
        shown = running.ask("stack", "hvd", "1")
        assert shown.startswith("hvd-worker-1:\nrank 1 shows its Python stack:\n")
        assert re.search(r'/train\.py", line \d+ in <module>$', shown, re.M)

    def test_top_shows_what_each_pod_uses_and_does(self, running: Run) -> None:
        rows = [line.split() for line in running.ask("top", "hvd").splitlines()]
        by_pod = {row[0]: row for row in rows}
        assert by_pod["hvd-worker-1"][3] == "1"
        assert by_pod["hvd-worker-1"][5] == "8.0"
        assert float(by_pod["hvd-worker-0"][1]) >= 0

    def test_page_shows_the_step_and_the_memory_of_each_rank(self, running: Run) -> None:
        with page_of(running) as views:
            # Later views have what the pods say of themselves.
            view = next(
                view for view in views if sum(bool(row["step"]) for row in view["rows"]) == 2
            )
        assert view["progress"]["steps"] == STEPS
        assert all(row["memory"] > 0 for row in view["rows"] if row["step"])

    def test_stopped_run_is_suspended(self, stopped: Run) -> None:
        assert stopped.ask("status", "hvd").startswith("hvd: suspended")

    def test_restarted_run_trains_again(self, restarted: Run) -> None:
        assert restarted.progress()["steps"] == STEPS

    def test_scaled_run_trains_on_one_rank(self, scaled: Run) -> None:
        assert scaled.progress()["samples_per_second"] == 8.0

    def test_wait_ends_with_the_run(self, ending: Run) -> None:
        assert ending.ask("wait", "hvd", "--timeout", "180s") == "run hvd finished\n"

    def test_finished_run_is_watched_from_its_record(self, finished: Run) -> None:
        assert finished.ask("watch", "hvd").startswith("hvd: finished, step ")

    def test_report_has_the_log_and_the_record_and_no_secret(self, finished: Run) -> None:
        file = finished.code.parent / "report.html"
        finished.change("report", "hvd", "-w", str(file))
        text = file.read_text()
        assert re.search(r"\bstep \d+ \d+\.\d+", text), "the log"
        assert "state: Finished" in text, "the record"
        assert "TRACKER_TOKEN" in text, "the name"
        assert SECRET not in text, "the values"
