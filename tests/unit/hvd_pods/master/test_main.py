"""The master's main program: real sockets, a fake API server, and shell scripts for launchers."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.master import code_effects, event_log, launcher_effects, prober
from hvd_pods.pod import code_archive
from hvd_pods.rules.effects import StartLauncher
from tests.support.fakes import faults
from tests.support.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.support.master_pod import MasterPod

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


def made(pod: MasterPod) -> list[list[int]]:
    """The number and the fence number of each attempt."""
    lines = (pod.generated.parent / "attempts").read_text().splitlines()
    return [[int(word) for word in line.split()] for line in lines]


def record(pod: MasterPod) -> dict[str, str]:
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    data: dict[str, str] = item.get("data") or {}
    return data


@pytest.fixture
def finished(pod: MasterPod) -> MasterPod:
    """A pod whose training has finished."""
    pod.install("exit 0")
    assert pod.run() == 0
    return pod


@pytest.fixture
def failed(pod: MasterPod, capfd: pytest.CaptureFixture[str]) -> MasterPod:
    """A pod whose script has made the same mistake twice, on different ranks."""
    pod.put_job(spec={"backoffLimit": 9})
    pod.install(f"{{ {MISTAKE}; }} >&2; exit 1")
    assert pod.run() == 1
    return pod


def test_launcher_gets_the_ranks_their_hosts_and_the_command(pod: MasterPod) -> None:
    out = pod.generated.parent
    pod.install('printf "%s\\n" "$@" >"$OUT/arguments"; cp "$OUT"/generated/hostfile "$OUT"')
    assert pod.run() == 0
    arguments = (out / "arguments").read_text().splitlines()
    assert arguments[:4] == ["-np", "4", "--hostfile", str(pod.generated / "hostfile")]
    assert arguments[-2:] == ["python", "train.py"]
    hostfile = (out / "hostfile").read_text()
    assert hostfile == "hvd-worker-0.hvd slots=2\nhvd-worker-1.hvd slots=2\n"


def test_stages_of_a_run_are_its_events(finished: MasterPod) -> None:
    assert finished.stages() == ["Started", "WorkersReady", "Training", "Finished"]
    assert {event["type"] for event in finished.api.items("core/events")} == {"Normal"}


def test_a_run_that_finishes_leaves_its_record(finished: MasterPod) -> None:
    assert finished.recorded() == ("Finished", "")
    assert record(finished)["holder"] == ""


def test_a_run_that_finishes_leaves_no_worker(finished: MasterPod) -> None:
    assert finished.replicas() == 0


def test_the_events_of_a_run_can_be_replayed(pod: MasterPod) -> None:
    pod.install(FAIL_UNTIL.format(2))
    assert pod.run() == 0
    with (pod.generated / "events.jsonl").open() as lines:
        steps = list(event_log.replay(lines))
    launches = [
        effect for *_, effects in steps for effect in effects if isinstance(effect, StartLauncher)
    ]
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


# Where that is told.
CAUSE = "rank 2 on hvd-worker-1: TypeError: no, train.py:94"


def test_the_first_rank_that_failed_is_in_the_objects_of_the_run(failed: MasterPod) -> None:
    assert failed.termination_log.read_text() == f"{CAUSE}\n"
    assert failed.recorded() == ("Failed", CAUSE)
    assert failed.api.items("core/events")[-1]["message"] == CAUSE


def test_the_last_line_of_the_log_has_the_first_rank_that_failed(
    failed: MasterPod, capfd: pytest.CaptureFixture[str]
) -> None:
    last = capfd.readouterr().out.splitlines()[-1].partition("] ended at ")[2]
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT[\d:]+Z with exit code 1: {re.escape(CAUSE)}", last)


def test_output_of_the_launcher_is_passed_on(
    failed: MasterPod, capfd: pytest.CaptureFixture[str]
) -> None:
    assert capfd.readouterr().err.count("TypeError: no\n") == 2


def test_each_attempt_gets_the_code_again(pod: MasterPod, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training may have changed or deleted it."""
    out = pod.generated.parent
    (out / "mounted").mkdir()
    (out / "mounted" / "train.py").write_text("train")
    (out / "code").mkdir()
    monkeypatch.setattr(code_effects, "CODE_SOURCE", out / "mounted")
    monkeypatch.setattr(code_effects, "CODE", out / "code")
    pod.workers.install(
        'case "$2" in *code_archive.py*) ;; *) exit 255;; esac\ncat >/dev/null; echo "$1" >>$OUT/on'
    )
    pod.install(FAIL_UNTIL.format(2))
    digest = code_archive.digest(code_archive.read_source(out / "mounted"))
    assert pod.run(code={"version": "v1", "sha256": digest}) == 0
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
BOUND = {"to": "core", "cores_per_rank": 2, "ranks_per_socket": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param("exit 78", 78, id="too few"),
        pytest.param("exit 0", 205, id="enough"),
        pytest.param("exit 255", 205, id="no answer"),
    ],
)
def test_failed_binding_of_a_daemon_is_no_network_failure(
    pod: MasterPod, answer: str, code: int
) -> None:
    """Open MPI's daemon ends without a word, and mpirun blames the network."""
    pod.put_job(spec={"backoffLimit": 0})
    pod.install(f'echo "{LOST}" >&2; exit 205')
    pod.workers.install(f'case "$2" in *binding.py*) {answer};; esac; exit 255')
    assert pod.run(binding=BOUND) == code


def test_an_image_without_the_launcher_fails_at_once(pod: MasterPod) -> None:
    assert pod.run() == 78


@pytest.mark.parametrize(
    "where",
    [(launcher_effects, "build_command"), (prober, "find_banner_problem")],
    ids=["work queue", "source"],
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
*"graceful_termination.py kept"*) echo 2;;
*) exit 0;;
esac
"""
# Trains until a test says how it ends.
FOLLOWS = """
echo "$2" >>"$OUT/numbers"
cat "$OUT/generated/hostfile" >"$OUT/hostfile"
while [ ! -e "$OUT/end" ]; do sleep 0.05; done
"""


@pytest.mark.slow
def test_run_with_a_minimum_shrinks_and_grows(pod: MasterPod, background: Background) -> None:
    pod.workers.install(KEEPS)
    pod.install(FOLLOWS)
    group = {"stateful_set": "hvd-worker", "number": 3, "maximum": 3, "minimum": 1}
    groups = [{**group, "slots": 2, "revision": "r1"}]
    numbers = pod.generated.parent / "numbers"

    def wait_for(launches: list[str]) -> None:
        def has_come() -> bool:
            return numbers.exists() and numbers.read_text().split() == launches

        wait_until(has_come, TIMEOUT, f"launches of {launches} ranks")

    def change() -> None:
        with ExitStack() as stack:
            stack.callback((pod.generated.parent / "end").touch)
            wait_for(["4"])
            pod.workers.start(2)
            wait_for(["4", "6"])
            pod.workers.stop(1)
            wait_for(["4", "6", "4"])

    changes = background(change)
    assert pod.run(groups=groups, shrink_after_seconds=0.2, lost_after_seconds=1) == 0
    changes.result(TIMEOUT)
    workers = (pod.generated.parent / "hostfile").read_text().split()[::2]
    assert workers == ["hvd-worker-0.hvd", "hvd-worker-2.hvd"]


def test_a_master_that_is_asked_to_end_ends_the_ranks(pod: MasterPod) -> None:
    pod.install(ASK_TO_END)
    assert pod.run() == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "failure",
    [faults.status(503), faults.status(403), faults.text(200, '{"cut')],
    ids=["503", "403", "cut JSON"],
)
def test_a_training_that_finished_is_a_success_whatever_the_api_does(
    pod: MasterPod, failure: faults.Failure
) -> None:
    pod.api.fail("POST", "core/events", failure, times=20)
    pod.api.fail("PATCH", "core/configmaps", failure, times=20)
    pod.api.fail("GET", "batch/jobs", failure, times=20)
    pod.api.fail("PATCH", "apps/statefulsets", failure, times=20)
    pod.install("exit 0")
    assert pod.run() == 0


def test_run_without_a_service_account_is_retried_and_makes_no_calls(
    pod: MasterPod, names: dict[str, list[str]]
) -> None:
    names["hvd-worker-0.hvd"] = [pod.workers.address(0)]
    names["hvd-worker-1.hvd"] = [pod.workers.address(1)]
    pod.install(FAIL_UNTIL.format(9))
    assert pod.run(has_api_access=False, backoff_limit=1) == 3
    assert len(made(pod)) == 2
    assert pod.api.requests == []
