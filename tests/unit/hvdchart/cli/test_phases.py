"""The phases that are printed while a command waits for a run."""

from __future__ import annotations

import pytest

from hvdchart.cli import phases
from hvdchart.cli.phases import PhasePrinter
from hvdchart.run import watch
from hvdchart.run.cluster import Cluster
from tests.fakes.cluster import FakeCluster
from tests.unit.hvdchart.cli.test_run import DONE, ENDED_MASTER, play
from tests.unit.hvdchart.runs import JOB, MASTER, event, job
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


def test_phases_are_printed_until_the_run_is_done(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    printed: list[str] = []
    monkeypatch.setattr(phases, "say", lambda line: printed.append(line.partition(" s  ")[2]))
    fake_cluster.put("events", event(JOB, "Job", "Training", "starts", type="Normal"))
    play(fake_cluster, job(), MASTER)
    printer = PhasePrinter(Cluster.connect(), "hvd", has_progress=False)
    wait_until(lambda: printed, 20, "the first phase is printed")
    play(fake_cluster, DONE, ENDED_MASTER)
    wait_until(lambda: len(printed) > 1, 20, "the end is printed")
    printer.close()
    assert printed == ["training", "done: finished"]


def test_phases_that_cannot_be_read_are_no_end_of_the_run(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(phases, "say", printed.append)
    fake_cluster.refusals["jobs list"] = (403, "no right")
    printer = PhasePrinter(Cluster.connect(), "hvd", has_progress=False)
    wait_until(lambda: printed, 20, "the refusal is printed")
    printer.close()
    assert "cannot list jobs in namespace team: you are not allowed to" in printed[0]
    assert printed[0].endswith("; the run continues")
