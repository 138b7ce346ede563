"""The master's main program: real sockets, a fake API server, and shell scripts for launchers."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.common import code_archive
from hvd_pods.master import event_log, probing, record_io, run_effects, user_code
from hvd_pods.rules import growing, holding, retries
from hvd_pods.rules.effects import StartLauncher
from tests.support.fakes import faults
from tests.support.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.master_pod import MasterPod

Background = Callable[..., Any]
# Writes the number and the fence number of each attempt, and fails until the attempt given.
FAIL_UNTIL = 'echo "$HVD_ATTEMPT $HVD_FENCE" >>"$OUT/attempts"; [ "$HVD_ATTEMPT" -ge {} ] || exit 3'
# Of the script, on a rank that is another one in each attempt.
MISTAKE = (
    "echo 'Traceback (most recent call last):'; echo '  File \"/app/train.py\", line 94, in f';"
    "echo 'TypeError: no'; echo \"  Process name: [[7,1],$HVD_ATTEMPT]\""
)
# The kubelet asks once. A master that does not pass the signal on sees the launcher succeed.
ASK_TO_END = f"kill -TERM $PPID; exec sleep {TIMEOUT}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(holding, "LOOK_EVERY", 0.02)


def made(pod: MasterPod) -> list[list[int]]:
    """The number and the fence number of each attempt."""
    lines = (pod.generated.parent / "attempts").read_text().splitlines()
    return [[int(word) for word in line.split()] for line in lines]


def record(pod: MasterPod) -> dict[str, str]:
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    data: dict[str, str] = item.get("data") or {}
    return data


def test_launcher_gets_the_ranks_their_hosts_and_the_command(pod: MasterPod) -> None:
    out = pod.generated.parent
    pod.install('printf "%s\\n" "$@" >"$OUT/arguments"; cp "$OUT"/generated/hostfile "$OUT"')
    assert pod.run() == 0
    arguments = (out / "arguments").read_text().splitlines()
    assert arguments[:4] == ["-np", "4", "--hostfile", str(pod.generated / "hostfile")]
    assert arguments[-2:] == ["python", "train.py"]
    hostfile = (out / "hostfile").read_text()
    assert hostfile == "hvd-worker-0.hvd slots=2\nhvd-worker-1.hvd slots=2\n"


def test_a_run_that_finishes_leaves_its_record_and_no_worker(pod: MasterPod) -> None:
    pod.install("exit 0")
    assert pod.run() == 0
    assert pod.stages() == ["Started", "WorkersReady", "Training", "Finished"]
    assert {event["type"] for event in pod.api.items("core/events")} == {"Normal"}
    assert pod.recorded() == ("Finished", "")
    assert record(pod)["holder"] == ""
    assert pod.replicas() == 0
    assert not pod.termination_log.exists()


def test_the_events_of_a_run_can_be_replayed(pod: MasterPod) -> None:
    pod.install(FAIL_UNTIL.format(2))
    assert pod.run() == 0
    with (pod.generated / "events.jsonl").open() as lines:
        steps = list(event_log.replay(lines))
    launches = [e for *_, effects in steps for e in effects if isinstance(e, StartLauncher)]
    assert [launch.attempt for launch in launches] == [1, 2]
    (_, before), (_, fence) = made(pod)
    assert before < fence, "workers end what an earlier attempt has left"
    state = steps[-1][2]
    assert (state.entry["state"], state.entry["failures"]) == ("Finished", "1")


def test_attempts_of_a_run_have_one_id_by_which_trackers_know_them(pod: MasterPod) -> None:
    pod.install(f'echo "$HVD_RUN_ID" >>"$OUT/ids"; {FAIL_UNTIL.format(2)}')
    assert pod.run(id="a1b2") == 0
    assert [attempt for attempt, _ in made(pod)] == [1, 2]
    assert (pod.generated.parent / "ids").read_text() == "a1b2\na1b2\n"


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
    last = output.out.splitlines()[-1].partition("] ended at ")[2]
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT[\d:]+Z with exit code 1: {re.escape(cause)}", last)


def test_each_attempt_gets_the_code_again(pod: MasterPod, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training may have changed or deleted it."""
    out = pod.generated.parent
    for name, folder in (("CODE_SOURCE", out / "mounted"), ("CODE", out / "code")):
        folder.mkdir()
        monkeypatch.setattr(user_code, name, folder)
    (out / "mounted" / "train.py").write_text("train")
    pod.workers.install(
        'case "$2" in *code_archive.py*) ;; *) exit 255;; esac\ncat >/dev/null; echo "$1" >>$OUT/on'
    )
    pod.install(FAIL_UNTIL.format(2))
    digest = code_archive.digest(code_archive.read_source(out / "mounted"))
    assert pod.run(code="v1", codeSha256=digest) == 0
    assert len(made(pod)) == 2
    workers = ["hvd-worker-0.hvd", "hvd-worker-1.hvd"]
    assert sorted((out / "on").read_text().split()) == sorted(2 * workers)


@pytest.mark.slow
def test_later_attempts_do_not_ask_for_the_mpi_again(pod: MasterPod) -> None:
    pod.install(FAIL_UNTIL.format(2), also='echo version >>"$OUT/calls"')
    assert pod.run() == 0
    assert len(made(pod)) == 2
    calls = (pod.generated.parent / "calls").read_text().split()
    assert calls == ["version"]


LOST = "ORTE has lost communication with a remote daemon."
BOUND = {"to": "core", "coresPerRank": 2, "ranksPerSocket": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        pytest.param(
            "echo 'which takes 4 cores'; exit 78", 78, "which takes 4 cores", id="too few"
        ),
        pytest.param("exit 0", 205, "exit code 205", id="enough"),
        pytest.param("exit 255", 205, "exit code 205", id="no answer"),
    ],
)
def test_daemon_that_cannot_bind_its_ranks_is_not_taken_for_a_network_failure(
    pod: MasterPod, answer: str, code: int, reason: str
) -> None:
    """Open MPI's daemon ends without a word, and mpirun blames the network."""
    pod.put_job(spec={"backoffLimit": 0})
    pod.install(f'echo "{LOST}" >&2; exit 205')
    pod.workers.install(f'case "$2" in *binding.py*) {answer};; esac; exit 255')
    assert pod.run(binding=BOUND) == code
    assert reason in pod.termination_log.read_text()


def test_an_image_without_the_launcher_fails_at_once(pod: MasterPod) -> None:
    assert pod.run() == 78
    assert "the image has no mpirun on PATH" in pod.termination_log.read_text()


@pytest.mark.parametrize(
    "where",
    [(run_effects, "build_command"), (probing, "find_banner_problem")],
    ids=["lane", "source"],
)
def test_a_defect_of_the_master_is_left_to_another_master(
    pod: MasterPod,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: tuple[Any, str],
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("defect")

    monkeypatch.setattr(*where, fail)
    pod.install("exit 1")
    assert pod.run() == 70
    assert "KeyError: 'defect'" in capsys.readouterr().err
    assert record(pod)["holder"] == "", "the other one need not wait"
    assert pod.replicas() == 2


# Says that the ranks of the worker keep their state.
KEEPS = """
case "$2" in
*"draining.py kept"*) echo 2;;
*) exit 0;;
esac
"""
# Trains until a test says how it ends.
FOLLOWS = """
echo "$2" >>"$OUT/numbers"
cat "$OUT/generated/hostfile" >"$OUT/hostfile"
while [ ! -e "$OUT/end" ]; do sleep 0.05; done
"""


def test_a_run_with_a_minimum_goes_on_without_a_worker_and_with_one_that_comes(
    pod: MasterPod, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "SETTLE", 0.1)
    pod.workers.install(KEEPS)
    pod.install(FOLLOWS)
    group = {"statefulSet": "hvd-worker", "number": 3, "maximum": 3, "minimum": 1}
    groups = [{**group, "slots": 2, "revision": "r1"}]
    numbers = pod.generated.parent / "numbers"

    def wait_for(launches: list[str]) -> None:
        def has_come() -> bool:
            return numbers.exists() and numbers.read_text().split() == launches

        wait_until(has_come, TIMEOUT, f"launches of {launches} ranks")

    def change() -> None:
        try:
            wait_for(["4"])
            pod.workers.start(2)
            wait_for(["4", "6"])
            pod.workers.stop(1)
            wait_for(["4", "6", "4"])
        finally:
            (pod.generated.parent / "end").touch()

    changes = background(change)
    assert pod.run(groups=groups, shrinkAfterSeconds=0.2, lostAfterSeconds=1) == 0
    changes.result(TIMEOUT)
    workers = (pod.generated.parent / "hostfile").read_text().split()[::2]
    assert workers == ["hvd-worker-0.hvd", "hvd-worker-2.hvd"]
    stages = [reason for reason in pod.stages() if reason in ("Shrunk", "Grown")]
    assert stages[:2] == ["Shrunk", "Grown"]
    assert record(pod)["failures"] == "0"


def test_a_master_that_is_asked_to_end_ends_the_ranks(pod: MasterPod) -> None:
    pod.put_job(uid="uid-2")
    pod.install(ASK_TO_END)
    assert pod.run(cleanup="Always") == 128 + signal.SIGTERM
    reason = "an upgrade or an uninstall removed its Job"
    assert reason in pod.termination_log.read_text()
    assert pod.recorded()[0] == "Running"
    assert pod.replicas() == 2


BOOKKEEPING = (
    ("POST", "core/events"),
    ("PATCH", "core/configmaps"),
    ("GET", "batch/jobs"),
    ("PATCH", "apps/statefulsets"),
)


@pytest.mark.parametrize(
    "failure",
    [faults.status(503), faults.status(403), faults.text(200, '{"cut')],
    ids=["503", "403", "cut JSON"],
)
def test_a_training_that_finished_is_a_success_whatever_the_api_does(
    pod: MasterPod, failure: faults.Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "TAKE_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(holding, "START_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(record_io, "RELEASE_RETRY_SECONDS", 0.05)
    for method, path in BOOKKEEPING:
        pod.api.fail(method, path, failure, times=20)
    pod.install("exit 0")
    assert pod.run() == 0


def test_without_a_service_account_the_run_has_its_retries_and_the_workers_stay(
    pod: MasterPod, names: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for ordinal in (0, 1):
        names[f"hvd-worker-{ordinal}.hvd"] = [pod.workers.address(ordinal)]
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run(api=False, retries=1) == 3
    assert len(made(pod)) == 2
    assert pod.api.requests == []
    stay = "the workers stay: without a service account the master cannot scale them"
    assert stay in capsys.readouterr().out
