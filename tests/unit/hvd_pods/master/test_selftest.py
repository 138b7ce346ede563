"""`helm test`: an allreduce over the ranks of a run that has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from hvd_pods.cluster import kube
from hvd_pods.master import selftest
from hvd_pods.rules.record_lock import RENEW_INTERVAL_SECONDS
from hvd_pods.shared import network_policies
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.support.fakes.faults import TIMEOUT
from tests.support.fakes.server import Handler
from tests.support.runs import make_run
from tests.unit.hvd_pods.support.call_limits import ONCE, PATIENT
from tests.unit.hvd_pods.support.master_pod import JOB, MasterPod

Background = Callable[..., "Future[Any]"]


QUICK = selftest.Timing(poll_interval_seconds=0.02, settle_timeout_seconds=0.5)
# The test has one second.
LIMITED = QUICK._replace(limit_seconds=1.0, spare_seconds=0.0)
TESTER = "hvd-test"


def run_test(pod: MasterPod, timing: selftest.Timing = QUICK) -> int:
    """Run the test in its pod; return its exit code."""
    return selftest.main(pod.connect, timing)


def job(*conditions: tuple[str, str], suspend: bool = False) -> dict[str, Any]:
    """A Job; conditions are (type, status)."""
    return {
        "metadata": {"name": JOB},
        "spec": {"suspend": suspend},
        "status": {"conditions": [{"type": kind, "status": held} for kind, held in conditions]},
    }


OVER = [job(("Complete", "True")), job(("FailureTarget", "True"), ("Failed", "True"))]


@pytest.fixture
def waiting(api_server: FakeApi, background: Background) -> Future[None]:
    """A test that waits for the end of a run, whose Job is about to fail."""
    api_server.put("batch/jobs", job(("Complete", "False"), ("FailureTarget", "True")))
    wait = background(selftest.wait_for_end, kube.Api(ONCE), JOB, time.monotonic() + TIMEOUT, QUICK)
    api_server.wait(lambda: len(api_server.requests) > 2)
    assert not wait.done()
    return wait


@pytest.fixture
def ended(pod: MasterPod, monkeypatch: pytest.MonkeyPatch) -> MasterPod:
    """The test's pod, beside a run that finished and whose workers were scaled to 0."""
    pod.put_job(status=job(("Complete", "True"))["status"])
    set_replicas(pod, 0)
    monkeypatch.setenv("HVD_TESTED_JOB", JOB)
    # The pod of a hook has no Job.
    monkeypatch.setenv("HVD_JOB", "")
    monkeypatch.setenv("HVD_JOB_UID", "")
    # How many workers there are while the launcher runs is seen in the requests alone.
    pod.install('printf "%s\\n" "$@" >"$OUT/arguments"')
    return pod


def set_replicas(pod: MasterPod, number: int) -> None:
    item = {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": number}}
    pod.api.put("apps/statefulsets", item)


def scales(pod: MasterPod) -> list[int]:
    patches = pod.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    return [request.body["spec"]["replicas"] for request in patches]


@pytest.fixture
def guarded(ended: MasterPod, monkeypatch: pytest.MonkeyPatch) -> MasterPod:
    """The test's pod in a release with a NetworkPolicy, which admits it by its label."""
    monkeypatch.setenv("HVD_POLICY", "Enabled")
    monkeypatch.setattr("socket.gethostname", lambda: TESTER)
    labels = {"app.kubernetes.io/component": "master", "app.kubernetes.io/instance": "hvd"}
    ended.api.put("core/pods", {"metadata": {"name": TESTER, "labels": labels}})
    ended.environment()
    return ended


def relabels(pod: MasterPod) -> list[str | None]:
    """What the test has made of the label by which the policy admits its pod."""
    patches = pod.api.asked("PATCH", f"core/pods/{TESTER}")
    return [patch.body["metadata"]["labels"]["app.kubernetes.io/component"] for patch in patches]


def end_workers(pod: MasterPod) -> None:
    """Let no worker be reached once the pod's label is another one."""

    def end(handler: Handler) -> None:
        for number in (0, 1):
            pod.workers.stop(number)
        faults.accept(handler)

    pod.api.fail("PATCH", "core/pods", end)


def lose(pod: MasterPod, connections: int) -> faults.Failure:
    """Let the next connections to workers end at once, as those through a mesh's proxy."""

    def answer(handler: Handler) -> None:
        pod.workers.lose(connections)
        faults.accept(handler)

    return answer


@pytest.mark.parametrize("end", [*OVER, job(suspend=True)])
def test_a_run_is_waited_for_until_it_ends_or_is_suspended(
    api_server: FakeApi, waiting: Future[None], end: dict[str, Any]
) -> None:
    api_server.put("batch/jobs", end)
    waiting.result(TIMEOUT)


def test_a_run_is_waited_for_until_it_is_deleted(
    api_server: FakeApi, waiting: Future[None]
) -> None:
    api_server.remove("batch/jobs", JOB)
    waiting.result(TIMEOUT)


@pytest.mark.parametrize(
    ("mode", "launcher"),
    [
        ("mpirun", "mpirun"),
        ("direct", "direct"),
        ("custom", "mpirun"),
    ],
)
def test_the_test_is_started_as_the_run_itself_where_possible(mode: str, launcher: str) -> None:
    group = {"stateful_set": "w", "number": 1, "maximum": 3, "slots": 2, "revision": "r"}
    run = selftest.bandwidth_run(make_run(mode=mode, groups=[group]))
    assert run.mode == launcher
    assert run.args == ["python3", "/horovod/bin/hvd_pods/rank/allreduce_check.py", "bandwidth"]
    assert (run.ranks, run.needed_workers) == (2, {"w": 1})
    assert len(run.workers) == 3, "spares are used where they answer"


@pytest.mark.parametrize(("found", "expected"), [(0, [2, 0]), (1, [2, 1]), (2, []), (3, [])])
def test_there_are_as_many_workers_as_before_the_test(
    ended: MasterPod, found: int, expected: list[int]
) -> None:
    """After a failed run, its workers are there for debugging."""
    set_replicas(ended, found)
    ended.environment(cleanup="Always")
    assert run_test(ended) == 0
    assert scales(ended) == expected


def test_the_test_starts_all_ranks_and_says_that_it_passed(
    ended: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.environment()
    assert run_test(ended) == 0
    arguments = (ended.generated.parent / "arguments").read_text().splitlines()
    assert (arguments[1], arguments[-1]) == ("4", "bandwidth")
    assert capsys.readouterr().out.endswith("] the test passed\n")


def test_the_test_makes_no_events(ended: MasterPod) -> None:
    """They are those of the run."""
    ended.environment()
    assert run_test(ended) == 0
    assert ended.stages() == []


@pytest.mark.promise("policy that nothing enforces is reported")
def test_policy_that_nothing_enforces_is_reported(
    guarded: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_test(guarded) == 0
    out = capsys.readouterr().out
    assert network_policies.UNENFORCED in out
    assert scales(guarded) == [2, 0], "the workers are asked before they go"
    assert relabels(guarded) == [None, "master"]


@pytest.mark.slow
def test_record_is_held_while_the_policy_is_probed(guarded: MasterPod) -> None:
    """Another master would take the workers meanwhile, and the test would scale them after that."""
    # Where nothing enforces the policy, the probe takes all of this time.
    assert (
        run_test(
            guarded,
            QUICK._replace(limit_seconds=60.0, settle_timeout_seconds=RENEW_INTERVAL_SECONDS + 1),
        )
        == 0
    )
    paths = [request.path for request in guarded.api.requests if request.method == "PATCH"]
    pod = f"core/pods/{TESTER}"
    during = paths[paths.index(pod) : len(paths) - paths[::-1].index(pod)]
    assert "core/configmaps/hvd-run" in during


def test_policy_that_is_enforced_is_reported(
    guarded: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    def admit(handler: Handler) -> None:
        guarded.workers.start(0, 1)
        faults.accept(handler)

    end_workers(guarded)
    guarded.api.fail("PATCH", "core/pods", admit)
    assert run_test(guarded) == 0
    assert selftest.ENFORCED in capsys.readouterr().out
    assert relabels(guarded) == [None, "master"]


def test_policy_is_enforced_where_only_the_proxy_of_a_mesh_accepts(
    guarded: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded.api.fail("PATCH", "core/pods", lose(guarded, 1000))
    guarded.api.fail("PATCH", "core/pods", lose(guarded, 0))
    assert run_test(guarded) == 0
    assert selftest.ENFORCED in capsys.readouterr().out


@pytest.mark.parametrize("connections", [1, 2])
def test_connections_that_fail_by_chance_are_no_sign_of_a_policy(
    guarded: MasterPod, capsys: pytest.CaptureFixture[str], connections: int
) -> None:
    guarded.api.fail("PATCH", "core/pods", lose(guarded, connections))
    assert run_test(guarded) == 0
    assert network_policies.UNENFORCED in capsys.readouterr().out


def test_label_is_put_back_where_the_answers_to_its_removal_are_lost(guarded: MasterPod) -> None:
    def change(handler: Handler) -> None:
        component = relabels(guarded)[-1]
        labels = {"app.kubernetes.io/component": component} if component else {}
        guarded.api.put("core/pods", {"metadata": {"name": TESTER, "labels": labels}})
        (faults.accept if component else faults.cut_answer)(handler)

    guarded.api.fail("PATCH", "core/pods", change, times=1000)
    guarded.connect = partial(kube.Api, PATIENT)
    assert run_test(guarded) == 0
    tester = guarded.api.find("core/pods", TESTER)
    assert tester
    assert tester["metadata"]["labels"] == {"app.kubernetes.io/component": "master"}


def test_worker_that_ends_meanwhile_is_no_sign_of_a_policy(
    guarded: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    end_workers(guarded)
    assert run_test(guarded) == 0
    assert selftest.UNKNOWN in capsys.readouterr().out


def test_policy_is_not_probed_without_the_right_to_it(
    guarded: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    """The administrator's own Role may lack it."""
    guarded.api.fail("PATCH", "core/pods", faults.status(403))
    assert run_test(guarded) == 0
    assert selftest.UNKNOWN in capsys.readouterr().out


def test_release_without_a_policy_changes_no_pod(ended: MasterPod) -> None:
    ended.environment()
    assert run_test(ended) == 0
    assert not [request for request in ended.api.requests if request.path.startswith("core/pods/")]


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("failures", [0, 100_000], ids=["too early", "no API server"])
def test_a_test_that_is_started_too_early_ends_and_touches_nothing(
    ended: MasterPod, failures: int
) -> None:
    """Or when the API server is away."""
    # A call that is repeated for longer than the test may take does not end.
    ended.connect = partial(kube.Api, PATIENT._replace(retry_seconds=1e6))
    ended.put_job()
    ended.api.fail("GET", "batch/jobs", faults.status(503), times=failures)
    ended.environment()
    assert run_test(ended, LIMITED) == 1
    assert scales(ended) == []
    assert ended.api.asked("PATCH", "core/configmaps/hvd-run") == []


@pytest.mark.slow
def test_a_test_that_is_started_too_early_says_when_to_start_it(
    ended: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.put_job()
    ended.environment()
    assert run_test(ended, LIMITED) == 1
    assert selftest.RUN_NOT_ENDED_REMEDY in capsys.readouterr().err


@pytest.mark.slow
def test_a_launcher_that_does_not_end_is_ended_and_the_workers_are_as_before(
    ended: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.install(f"exec sleep {TIMEOUT}")
    ended.environment()
    assert run_test(ended, LIMITED) == 1
    assert scales(ended) == [2, 0]
    assert " 1 s" in capsys.readouterr().err


def test_workers_of_a_run_that_began_meanwhile_are_left_to_it(ended: MasterPod) -> None:
    def upgrade(handler: Handler) -> None:
        # The Role names the new Job only.
        ended.api.fail("GET", "batch/jobs", faults.status(403))
        faults.accept(handler)

    ended.api.fail("PATCH", "apps/statefulsets", upgrade)
    ended.environment()
    assert run_test(ended) == 0
    assert scales(ended) == [2], "it did not scale down"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3)])
def test_selftest_makes_one_attempt_and_keeps_the_record(
    ended: MasterPod, script: str, code: int
) -> None:
    record = {"run": "r", "state": "Failed", "reason": "a defect", "attempts": "2", "trained": "u"}
    ended.api.put("core/configmaps", {"metadata": {"name": "hvd-run"}, "data": record})
    ended.install(f'echo >>"$OUT/launches"\n{script}')
    ended.environment()
    assert run_test(ended) == code
    assert (ended.generated.parent / "launches").read_text() == "\n"
    item: Any = ended.api.find("core/configmaps", "hvd-run")
    assert {key: item["data"].get(key) for key in record} == record
    assert (
        not {"workers", "progress", "trained", "orphanFence"} & item["data"].keys() - record.keys()
    )
