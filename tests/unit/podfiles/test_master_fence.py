"""The master's main program beside another master of the release."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from hvd_pods.master import lease
from tests.fakes import faults
from tests.fakes.faults import TIMEOUT
from tests.fakes.server import Handler
from tests.unit.podfiles.master_pod import MasterPod, read_log
from tests.unit.podfiles.rendezvous import Background
from tests.waiting import wait_until

OTHER = {"holder": "hvd-master-2-x", "holderJob": "hvd-master-2", "holderUid": "uid-2"}
OTHER |= {"epoch": "7", "renewed": "2026-01-01T10:00:00Z"}
WAITING = "waiting until hvd-master-2-x of hvd-master-2, which controls the workers, ends or stops "
WAITING += "renewing its hold"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.02)


def put_record(pod: MasterPod, **data: str) -> None:
    pod.api.put("core/configmaps", {"metadata": {"name": "hvd-run"}, "data": data})


@pytest.mark.slow
def test_a_master_waits_for_the_one_that_drives_the_workers(
    pod: MasterPod, background: Background, capsys: pytest.CaptureFixture[str]
) -> None:
    put_record(pod, **OTHER)
    pod.install('printf "$HVD_EPOCH" >"$OUT/epoch"')

    def release() -> None:
        pod.api.wait(lambda: pod.stages() == ["Waiting"])
        assert not (pod.generated.parent / "epoch").exists()
        assert pod.replicas() == 2
        put_record(pod, **{**OTHER, "holder": ""})

    released = background(release)
    assert pod.run() == 0
    released.result(TIMEOUT)
    assert read_log(capsys)[0] == WAITING
    assert pod.stages() == ["Waiting", "Started", "HostsReady", "Training", "Finished"]
    epoch = (pod.generated.parent / "epoch").read_text()
    assert int(epoch) > 1_000_000_000_000
    record: Any = pod.api.find("core/configmaps", "hvd-run")
    assert (record["data"]["epoch"], record["data"]["holder"]) == (epoch, "")


def test_a_master_that_was_waited_for_may_have_finished_this_very_run(
    pod: MasterPod, background: Background
) -> None:
    """Of a newer chart, where nothing prunes the Job of the older one."""
    put_record(pod, **OTHER, run="run-1", state="Running")
    pod.install('touch "$OUT/launched"')

    def finish() -> None:
        pod.api.wait(lambda: pod.stages() == ["Waiting"])
        done = {**OTHER, "holder": "", "run": "run-1", "state": "Finished", "time": "t"}
        put_record(pod, **done)

    finished = background(finish)
    assert pod.run() == 0
    finished.result(TIMEOUT)
    assert not (pod.generated.parent / "launched").exists()


def test_a_master_that_lost_the_record_ends_its_ranks_and_leaves_workers_and_record_alone(
    pod: MasterPod, background: Background
) -> None:
    pod.install('trap "touch $OUT/asked; exit 1" TERM; touch "$OUT/up"; sleep 60 2>&- & wait')

    def take_over() -> None:
        pod.api.wait(lambda: "Training" in pod.stages())
        wait_until((pod.generated.parent / "up").exists, TIMEOUT, "the launcher runs")
        put_record(pod, **OTHER, state="Running", reason="")

    taken = background(take_over)
    assert pod.run(cleanup="Always") == 78
    taken.result(TIMEOUT)
    assert (pod.generated.parent / "asked").exists()
    problem = "hvd-master-2-x of hvd-master-2 has taken the workers over from this master"
    assert pod.termination_log.read_text() == f"{problem}\n"
    assert pod.recorded() == ("Running", "")
    assert pod.replicas() == 2
    record: Any = pod.api.find("core/configmaps", "hvd-run")
    assert record["data"]["holder"] == "hvd-master-2-x"


def test_a_master_that_finds_at_its_end_that_it_was_replaced_leaves_the_workers_alone(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not reach the API server during the training."""
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)

    def replace(handler: Handler) -> None:
        put_record(pod, **OTHER, state="Running", reason="")
        job = pod.api.find("batch/jobs", "hvd-master-1")
        assert job
        handler.send_json(200, job)

    pod.install("exit 0")
    pod.show_job()
    pod.api.fail("GET", "batch/jobs", replace)
    assert pod.run() == 0
    assert pod.replicas() == 2
    assert pod.recorded() == ("Running", "")


@pytest.mark.slow
def test_a_master_that_cannot_renew_trains_to_its_end(pod: MasterPod) -> None:
    pod.install('while ! [ -e "$OUT/go" ]; do sleep 0.05; done')
    failed = []

    def refuse(handler: Handler) -> None:
        failed.append(1)
        if len(failed) == 5:
            (pod.generated.parent / "go").touch()
        faults.status(503)(handler)

    def refuse_from_now_on(handler: Handler) -> None:
        pod.api.fail("PATCH", "core/configmaps", refuse, times=5)
        faults.accept(handler)

    pod.api.fail("POST", "core/events", refuse_from_now_on)
    assert pod.run() == 0
    assert len(failed) == 5
    assert pod.recorded() == ("Finished", "")
    assert pod.replicas() == 0


def test_a_master_that_is_asked_to_end_while_it_waits_ends(
    pod: MasterPod, background: Background
) -> None:
    put_record(pod, **OTHER)

    def ask() -> None:
        pod.api.wait(lambda: pod.stages() == ["Waiting"])
        os.kill(os.getpid(), signal.SIGTERM)

    asked = background(ask)
    assert pod.run() == 128 + signal.SIGTERM
    asked.result(TIMEOUT)
    assert "terminated while hvd-master-2-x" in pod.termination_log.read_text()
    record: Any = pod.api.find("core/configmaps", "hvd-run")
    assert record["data"] == OTHER
