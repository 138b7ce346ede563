"""How the master ends: failed and interrupted attempts, earlier results, and API failures."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import Any

import pytest

from hvd_pods.master import events, kube, lease, main, record
from tests.fakes import faults
from tests.fakes.faults import TIMEOUT
from tests.fakes.server import Handler
from tests.unit.podfiles.master_pod import JOB, MasterPod, read_log


def test_a_rank_may_say_that_no_other_attempt_can_help(pod: MasterPod) -> None:
    pod.install("exit 78")
    assert pod.run() == 78
    assert pod.recorded()[0] == "Failed"
    assert pod.replicas() == 2, "OnSuccess keeps the workers of a failed run"


# The kubelet asks once. A master that does not pass the signal on sees the launcher succeed.
ASK_TO_END = f"kill -TERM $PPID; exec sleep {TIMEOUT}"


def test_a_master_that_is_asked_to_end_ends_the_ranks(pod: MasterPod) -> None:
    pod.install(ASK_TO_END)
    assert pod.run(cleanup="Always") == 128 + signal.SIGTERM
    assert "its pod was deleted or evicted" in pod.termination_log.read_text()
    assert pod.replicas() == 2, "another attempt follows"


def test_a_request_to_end_just_before_the_launcher_starts_ends_it(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def start_after_the_signal(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if arguments[0][0] == "horovodrun":
            signal.raise_signal(signal.SIGTERM)
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", start_after_the_signal)
    pod.install(f"exec sleep {TIMEOUT}")
    assert pod.run(cleanup="Always") == 128 + signal.SIGTERM
    assert "its pod was deleted or evicted" in pod.termination_log.read_text()


def test_a_master_whose_job_is_being_deleted_leaves_the_workers(pod: MasterPod) -> None:
    pod.put_job(deletionTimestamp="2026-01-01T10:00:00Z")
    pod.install(ASK_TO_END)
    assert pod.run(cleanup="Always") == 143
    assert "removed its Job" in pod.termination_log.read_text()
    assert pod.recorded() == ("Running", "")
    assert pod.replicas() == 2


@pytest.mark.slow
def test_a_master_at_the_jobs_deadline_scales_the_workers_down(pod: MasterPod) -> None:
    condition = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}
    pod.put_job(
        spec={"activeDeadlineSeconds": 60},
        status={"startTime": "2026-01-01T10:00:00Z", "conditions": [condition]},
    )
    pod.install(ASK_TO_END)
    assert pod.run(cleanup="Always") == 143
    assert pod.recorded()[0] == "Failed"
    assert "longer than master.activeDeadlineSeconds=60" in pod.recorded()[1]
    assert pod.replicas() == 0


def record_earlier(pod: MasterPod, **data: str) -> None:
    earlier = {"run": "run-1", "settings": "settings-1", "job": "hvd-master-0", "uid": "uid-0"}
    earlier |= {"time": "2026-01-01T10:00:00Z", **data}
    pod.api.put("core/configmaps", {"metadata": {"name": "hvd-run"}, "data": earlier})
    pod.install('touch "$OUT/launched"')


def test_a_run_that_finished_under_another_job_is_not_repeated(
    pod: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    record_earlier(pod, state="Finished", reason="")
    assert pod.run() == 0
    assert not (pod.generated.parent / "launched").exists()
    (event,) = pod.api.items("core/events")
    result = "this run already finished at 2026-01-01T10:00:00Z"
    remedy = "to run the same values again, increment master.generation"
    assert (event["reason"], event["type"]) == ("Finished", "Normal")
    assert event["message"] == f"{result}; {remedy}"
    assert read_log(capsys) == [f"{result}: nothing to do; {remedy}", "workers scaled to 0"]
    assert pod.recorded() == ("Finished", "")
    assert pod.replicas() == 0
    assert not pod.termination_log.exists()


@pytest.mark.parametrize(("cleanup", "replicas"), [("OnSuccess", 2), ("Always", 0)])
def test_a_run_that_failed_under_another_job_is_not_repeated(
    pod: MasterPod, cleanup: str, replicas: int
) -> None:
    record_earlier(pod, state="Failed", reason="exit code 3")
    assert pod.run(cleanup=cleanup) == 78
    assert not (pod.generated.parent / "launched").exists()
    assert pod.stages() == ["Failed"]
    text = pod.termination_log.read_text()
    assert text.startswith("this run already failed at 2026-01-01T10:00:00Z: exit code 3; to")
    assert pod.replicas() == replicas


@pytest.mark.slow
def test_a_failed_run_is_tried_again_with_other_settings(pod: MasterPod) -> None:
    record_earlier(pod, state="Failed", reason="exit code 137", settings="settings-0")
    assert pod.run() == 0
    assert (pod.generated.parent / "launched").exists()


def test_cleanup_is_what_an_upgrade_made_it_while_the_run_went_on(pod: MasterPod) -> None:
    pod.put_job(annotations={"horovod/cleanup": "Never"})
    pod.install("exit 0")
    assert pod.run(cleanup="Always") == 0
    assert pod.replicas() == 2


@pytest.mark.slow
def test_another_run_of_the_release_is_made(pod: MasterPod) -> None:
    record_earlier(pod, state="Finished", reason="", run="run-0")
    assert pod.run() == 0
    assert (pod.generated.parent / "launched").exists()


def test_a_result_that_is_repeated_keeps_what_the_run_had_reported(pod: MasterPod) -> None:
    record_earlier(pod, state="Finished", reason="", progress="step 9", hosts="hvd-worker-0")
    assert pod.run() == 0
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    assert (item["data"]["progress"], item["data"]["hosts"]) == ("step 9", "hvd-worker-0")


def test_a_run_whose_earlier_end_cannot_be_read_does_not_train(pod: MasterPod) -> None:
    record_earlier(pod, state="Finished", reason="")
    pod.api.fail("GET", "core/configmaps", faults.status(503))
    assert pod.run() == 1
    assert not (pod.generated.parent / "launched").exists()
    assert "cannot read which master controls the workers" in pod.termination_log.read_text()
    assert pod.recorded() == ("Finished", "")


BOOKKEEPING = (
    ("POST", "core/events"), ("PATCH", "core/configmaps"), ("GET", "batch/jobs"),
    ("PATCH", "apps/statefulsets"),
)  # fmt: skip


@pytest.mark.parametrize(
    "failure",
    [faults.status(503), faults.status(429, Retry_After="1"), faults.status(403),
     faults.reset, faults.cut_answer, faults.text(200, '{"cut')],
    ids=["503", "429", "403", "reset", "cut", "cut JSON"],
)  # fmt: skip
def test_a_training_that_finished_is_a_success_whatever_the_api_does(
    pod: MasterPod,
    failure: faults.Failure,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(record, "RUNNING_WITHIN", 0.0)
    monkeypatch.setattr(lease, "TAKE_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(main, "START_RETRY_SECONDS", 0.0)
    # The time of the last call, too, which gives the record back.
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.05)
    for method, path in BOOKKEEPING:
        pod.api.fail(method, path, failure, times=20)
    pod.install("exit 0")
    assert pod.run() == 0
    assert "training finished" in read_log(capsys)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_workers_are_scaled_to_zero_although_the_api_is_away_at_the_end(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Only between two attempts the Job is not waited for.
    monkeypatch.setattr(main, "AGAIN_RETRY_SECONDS", 0.0)

    def be_away(handler: Handler) -> None:
        for method in ("GET", "PATCH", "POST"):
            pod.api.fail(method, "", faults.reset, times=30)
        faults.reset(handler)

    pod.install("exit 0")
    pod.show_job()
    pod.api.fail("GET", f"batch/jobs/{JOB}", be_away)
    assert pod.run() == 0
    assert pod.replicas() == 0
    assert pod.recorded() == ("Finished", "")
    assert pod.stages()[-1] == "Finished"
    assert "cannot read the Job" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_node_that_is_drained_while_the_api_is_away_does_not_fail_a_finished_training(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_to_end(handler: Handler) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for method in ("GET", "PATCH", "POST"):
            pod.api.fail(method, "", faults.reset, times=100000)
        faults.reset(handler)

    monkeypatch.setattr(kube, "RETRY_SECONDS", 600.0)
    monkeypatch.setattr(kube, "STOP_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(events, "CLOSE_WITHIN", 0.1)
    pod.install("exit 0")
    pod.show_job()
    pod.api.fail("GET", f"batch/jobs/{JOB}", faults.reset, times=5)
    pod.api.fail("GET", f"batch/jobs/{JOB}", ask_to_end)
    assert pod.run() == 0


@pytest.mark.parametrize(("cleanup", "is_logged"), [("OnSuccess", True), ("Never", False)])
def test_without_a_service_account_the_workers_stay(
    pod: MasterPod,
    cleanup: str,
    is_logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    resolve = socket.getaddrinfo

    def in_cluster(name: str, *arguments: Any, **options: Any) -> Any:
        known = {f"hvd-worker-{number}.hvd": f"127.0.1.{number + 1}" for number in (0, 1)}
        return resolve(known.get(name, name), *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", in_cluster)
    pod.install("exit 0")
    assert pod.run(api=False, cleanup=cleanup) == 0
    assert pod.api.requests == []
    output = capsys.readouterr().out
    assert "training finished" in output
    stay = "the workers stay: without a service account the master cannot scale them"
    assert (stay in output) is is_logged
