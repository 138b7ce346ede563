"""The attempts that one master makes, one after the other."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master import attempts, ending, hosts, main, progress, user_code
from tests.fakes import faults
from tests.unit.podfiles.follower import Names
from tests.unit.podfiles.master_pod import MasterPod, read_log
from tests.unit.podfiles.rendezvous import Background

# Writes the number and the epoch of each attempt, and fails until the attempt given.
FAIL_UNTIL = 'echo "$HVD_ATTEMPT $HVD_EPOCH" >>"$OUT/attempts"; [ "$HVD_ATTEMPT" -ge {} ] || exit 3'
PROBLEM = "horovodrun ended with exit code 3: its last lines above say why"
# Of the script, on a rank that is another one in each attempt.
MISTAKE = (
    "echo 'Traceback (most recent call last):'; echo '  File \"/app/train.py\", line 94, in f';"
    "echo 'TypeError: no'; echo \"  Process name: [[7,1],$HVD_ATTEMPT]\""
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.05)


def made(pod: MasterPod) -> list[list[int]]:
    """The number and the epoch of each attempt."""
    lines = (pod.generated.parent / "attempts").read_text().splitlines()
    return [[int(word) for word in line.split()] for line in lines]


def record(pod: MasterPod) -> dict[str, str]:
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    data: dict[str, str] = item["data"]
    return data


@pytest.mark.slow
def test_a_failed_attempt_is_followed_by_another_in_the_same_master(
    pod: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    pod.install(FAIL_UNTIL.format(3))
    assert pod.run(cleanup="Always") == 0
    (first, one), (second, two), (third, three) = made(pod)
    assert (first, second, third) == (1, 2, 3)
    assert one < two < three, "workers end what an earlier attempt has left"
    training = ["Started", "HostsReady", "Training"]
    assert pod.stages() == [*training, "Failed", *training, "Failed", *training, "Finished"]
    assert pod.recorded() == ("Finished", "")
    assert (record(pod)["attempts"], record(pod)["failures"]) == ("3", "2")
    lines = read_log(capsys)
    assert "the next attempt begins at once; 2 of 2 retries are left" in lines
    assert "the next attempt begins in 0 s; 1 of 2 retries are left" in lines
    assert pod.replicas() == 0
    assert not pod.api.asked("DELETE", "core/pods/hvd-worker-0")


@pytest.mark.slow
def test_a_script_that_reports_new_steps_is_started_again_at_once(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def follow(told: progress.Progress, hosts: object) -> None:
        told.take(f"horovod_step {os.environ['HVD_ATTEMPT']}0", 0.0)

    monkeypatch.setattr(attempts, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(progress.Progress, "follow", follow)
    pod.install(FAIL_UNTIL.format(3))
    assert pod.run() == 0
    assert "the next attempt begins at once; 1 of 2 retries are left" in read_log(capsys)


@pytest.mark.slow
def test_attempts_are_compared_by_their_last_steps(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake at the same step each time is no progress, whenever the step was looked at."""

    def follow(told: progress.Progress, hosts: object) -> None:
        told.take(f"horovod_step {os.environ['HVD_ATTEMPT']}0", 0.0)

    def close(told: progress.Progress, *, tells_last: bool) -> None:
        if tells_last:
            told.take("horovod_step 500", 0.0)

    monkeypatch.setattr(progress.Progress, "follow", follow)
    monkeypatch.setattr(progress.Progress, "close", close)
    pod.put_job(spec={"backoffLimit": 9})
    pod.install(f'echo x >>"$OUT/tried"; {{ {MISTAKE}; }} >&2; exit 1')
    assert pod.run() == 1
    assert (pod.generated.parent / "tried").read_text() == "x\nx\n"


@pytest.mark.slow
def test_the_last_attempt_allowed_fails_the_run(pod: MasterPod) -> None:
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run(cleanup="Always") == 3
    assert len(made(pod)) == 3
    assert pod.recorded() == ("Failed", PROBLEM)
    assert pod.termination_log.read_text() == f"{PROBLEM}\n"
    event = pod.api.items("core/events")[-1]
    assert (event["reason"], event["type"], event["message"]) == ("Failed", "Warning", PROBLEM)
    assert pod.replicas() == 0


@pytest.mark.slow
def test_the_first_rank_that_failed_is_told_everywhere(
    pod: MasterPod, capfd: pytest.CaptureFixture[str]
) -> None:
    """Twice the same mistake of the script, on any rank: it is not tried a third time."""
    pod.put_job(spec={"backoffLimit": 9})
    pod.install(f'echo x >>"$OUT/tried"; {{ {MISTAKE}; }} >&2; exit 1')
    assert pod.run() == 1
    cause = "rank 2 on hvd-worker-1: TypeError: no, train.py:94"
    assert pod.termination_log.read_text() == f"{cause}\n"
    assert pod.recorded() == ("Failed", cause)
    assert pod.api.items("core/events")[-1]["message"] == cause
    assert (pod.generated.parent / "tried").read_text() == "x\nx\n"
    output = capfd.readouterr()
    assert output.err.count("TypeError: no\n") == 2, "the launcher's output is passed on"
    assert f"[hvd] error: {cause}\n" in output.err
    assert "the script failed twice in the same way" in output.out
    last = output.out.splitlines()[-1].partition("] ended at ")[2]
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT[\d:]+Z with exit code 1: {re.escape(cause)}", last)


@pytest.mark.slow
def test_a_new_master_counts_on(pod: MasterPod) -> None:
    """The one before was lost while it trained, which the Job counts."""
    counted = {"run": "run-1", "settings": "settings-1", "attempts": "4", "failures": "1"}
    item = {"metadata": {"name": "hvd-run"}, "data": {**counted, "state": "Running"}}
    pod.api.put("core/configmaps", item)
    pod.put_job(failed=1)
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run() == 3
    assert [number for number, _ in made(pod)] == [5]
    assert (record(pod)["attempts"], record(pod)["failures"]) == ("5", "2")


@pytest.mark.slow
def test_another_run_begins_to_count_anew(pod: MasterPod) -> None:
    counted = {"run": "run-0", "settings": "settings-1", "attempts": "4", "failures": "2"}
    pod.api.put("core/configmaps", {"metadata": {"name": "hvd-run"}, "data": counted})
    pod.install(FAIL_UNTIL.format(2))
    assert pod.run() == 0
    assert [number for number, _ in made(pod)] == [1, 2]


@pytest.mark.slow
def test_the_number_of_retries_is_kept_while_the_job_cannot_be_read(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "AGAIN_RETRY_SECONDS", 0.0)
    announce = main.announce_failure
    failed = []

    def lose_the_api(*arguments: Any) -> None:
        announce(*arguments)
        failed.append(1)
        pod.api.fail("GET", "batch/jobs", faults.status(503))

    monkeypatch.setattr(main, "announce_failure", lose_the_api)
    pod.put_job(spec={"backoffLimit": 1})
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run() == 3
    assert len(made(pod)) == 2


def test_without_a_service_account_the_run_has_the_number_of_retries(
    pod: MasterPod, names: Names
) -> None:
    for ordinal in (0, 1):
        names[f"hvd-worker-{ordinal}.hvd"] = [pod.workers.address(ordinal)]
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run(api=False, retries=1) == 3
    assert len(made(pod)) == 2


@pytest.mark.slow
def test_an_upgrade_may_change_the_number_of_retries_during_the_run(pod: MasterPod) -> None:
    announce = main.announce_failure

    def allow_more(*arguments: Any) -> None:
        pod.put_job(spec={"backoffLimit": 4})
        announce(*arguments)

    pod.install(FAIL_UNTIL.format(9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "announce_failure", allow_more)
        assert pod.run() == 3
    assert len(made(pod)) == 5


@pytest.mark.slow
def test_hosts_that_went_away_are_waited_for(
    pod: MasterPod, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "FIRST_REPORT_AFTER", 60.0)
    pod.install(FAIL_UNTIL.format(2))
    announce = main.announce_failure

    def lose_a_host(*arguments: Any) -> None:
        pod.workers.stop(1)
        announce(*arguments)
        background(come_back)

    def come_back() -> None:
        pod.api.wait(lambda: pod.stages().count("Started") == 2)
        pod.workers.start(1)

    monkeypatch.setattr(main, "announce_failure", lose_a_host)
    assert pod.run() == 0
    assert len(made(pod)) == 2


# Notes each call, and is the real program otherwise.
COUNTED = 'echo "{name} $*" >>"$OUT/calls"; {then}'


@pytest.mark.slow
@pytest.mark.parametrize(("knows_pods", "deliveries"), [(True, [1, 2]), (False, [4, 4])])
def test_later_attempts_make_only_what_is_new(
    pod: MasterPod,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    knows_pods: bool,
    deliveries: list[int],
) -> None:
    """Before the third attempt, another pod has the address of a worker."""
    for name in ("CODE", "CODE_SOURCE"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(user_code, name, tmp_path / name)
    (tmp_path / "CODE_SOURCE" / "train.py").write_text("")
    # The run does not ask for the packages.
    (tmp_path / "CODE_SOURCE" / "requirements.txt").write_text("numpy")
    keygen = shutil.which("ssh-keygen")
    pod.install(COUNTED.format(name="ssh-keygen", then=f'exec {keygen} "$@"'), "ssh-keygen")
    take = 'case "$*" in *user_code*) exec cat >/dev/null ;; esac; exit 255'
    pod.install(COUNTED.format(name="ssh", then=take), "ssh")
    mpirun = COUNTED.format(name="mpirun", then='[ "$1" = --version ] && ')
    pod.install(f'{mpirun} {{ echo "mpirun (Open MPI) 4.1.4"; exit; }}; {FAIL_UNTIL.format(4)}',
                "mpirun")  # fmt: skip
    pod.put_job(spec={"backoffLimit": 9})
    for ordinal in (0, 1):
        pod.workers.publish(ordinal, uid=f"uid-{ordinal}" if knows_pods else "")
    announce, failed = main.announce_failure, []

    def replace_a_worker(*arguments: Any) -> None:
        announce(*arguments)
        failed.append(1)
        if len(failed) == 2 and knows_pods:
            pod.workers.publish(1, uid="uid-2")

    monkeypatch.setattr(main, "announce_failure", replace_a_worker)
    assert pod.run(mode="mpirun", code="v1") == 0
    assert len(made(pod)) == 4
    calls = (tmp_path / "calls").read_text()
    assert calls.count("ssh-keygen ") == 1
    assert calls.count("mpirun --version") == 1
    given = re.findall(r"(hvd-worker-\d)\.hvd .*user_code\.py v1", calls)
    assert [given.count(f"hvd-worker-{ordinal}") for ordinal in (0, 1)] == deliveries


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "of_the_master"), [(1, 1), (3, 3), (70, 1), (137, 1), (143, 1), (255, 255)]
)
def test_the_ranks_exit_code_is_the_masters_unless_it_means_a_lost_master(
    pod: MasterPod, code: int, of_the_master: int
) -> None:
    pod.put_job(spec={"backoffLimit": 0})
    pod.install(f"exit {code}")
    assert pod.run() == of_the_master
    assert pod.recorded()[0] == "Failed"


def test_a_defect_of_the_master_is_left_to_another_master(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("defect")

    monkeypatch.setattr(main, "train", fail)
    assert pod.run() == 70
    assert "KeyError: 'defect'" in capsys.readouterr().err
    assert record(pod)["holder"] == "", "the other one need not wait"
    assert pod.replicas() == 2


@pytest.mark.slow
def test_a_master_that_is_asked_to_end_in_a_pause_ends(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 60.0)
    announce = main.announce_failure
    failed = []

    def ask_to_end(*arguments: Any) -> None:
        announce(*arguments)
        failed.append(1)
        if len(failed) == 2:
            signal.raise_signal(signal.SIGTERM)

    was_asked: list[bool] = []
    read = ending.read_job

    def read_job(api: Any, stopped: bool, retry_seconds: float | None = None) -> Any:
        was_asked.append(stopped)
        return read(api, stopped, retry_seconds)

    monkeypatch.setattr(main, "read_job", read_job)
    monkeypatch.setattr(main, "announce_failure", ask_to_end)
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run(cleanup="Always") == 128 + signal.SIGTERM
    assert was_asked == [False, False, False, True], "the Job's deadline may be the reason"
    assert len(made(pod)) == 2
    assert pod.replicas() == 2, "another master follows"
    assert "its pod was deleted or evicted" in pod.termination_log.read_text()


def test_no_attempt_follows_when_the_job_was_removed(pod: MasterPod) -> None:
    pod.put_job(deletionTimestamp="2026-01-01T10:00:00Z")
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run(cleanup="Always") == 3
    assert len(made(pod)) == 1
    assert pod.recorded() == ("Running", "")
    assert pod.replicas() == 2
