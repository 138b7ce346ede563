"""`helm test`: an allreduce over the ranks of a run that has ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import kube
import pytest
import selftest

from tests.unit.podfiles import faults
from tests.unit.podfiles.fake_api import FakeApi
from tests.unit.podfiles.faults import PATIENCE
from tests.unit.podfiles.master_pod import JOB, MasterPod
from tests.unit.podfiles.runs import make_run

Background = Callable[..., "Future[Any]"]


def job(*conditions: tuple[str, str], suspend: bool = False) -> dict[str, Any]:
    """A Job; conditions are (type, status)."""
    return {
        "metadata": {"name": JOB},
        "spec": {"suspend": suspend},
        "status": {"conditions": [{"type": kind, "status": held} for kind, held in conditions]},
    }


@pytest.mark.parametrize(
    ("current", "over"),
    [
        (job(("Complete", "True")), True),
        (job(("SuccessCriteriaMet", "True"), ("Failed", "True")), True),
        (job(suspend=True), True),
        (job(), False),
        (job(("Complete", "False")), False),
        (job(("FailureTarget", "True")), False),
        ({"spec": {}}, False),
    ],
)
def test_a_job_that_ended_or_is_suspended_is_over(current: dict[str, Any], over: bool) -> None:
    assert selftest.is_over(current) is over


@pytest.mark.parametrize("current", [None, job(("Complete", "True")), job(suspend=True)])
def test_a_run_that_is_over_is_not_waited_for(
    api_server: FakeApi, current: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if current:
        api_server.put("batch/jobs", current)
    selftest.wait_for_end(kube.Api(), JOB)
    assert len(api_server.requests) == 1
    assert capsys.readouterr().out == ""


@pytest.fixture
def waiting(
    api_server: FakeApi, background: Background, capsys: pytest.CaptureFixture[str]
) -> Future[Any]:
    """A test that waits for the run; its output is captured from the start."""
    api_server.put("batch/jobs", {**job(("Complete", "True")), "metadata": {"name": "another"}})
    api_server.put("batch/jobs", job())
    future = background(selftest.wait_for_end, kube.Api(), JOB)
    api_server.wait_for_watch("batch/jobs")
    assert not future.done()
    return future


def test_a_run_is_waited_for_until_it_ends(
    waiting: Future[Any], api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.put("batch/jobs", job(("FailureTarget", "True")))
    api_server.put("batch/jobs", job(("Failed", "True")))
    waiting.result(PATIENCE)
    assert len(api_server.requests) == 3, "a read, a watch, and a read at its end"
    assert capsys.readouterr().out.count(f"waiting for the run to end: {JOB}") == 1


def test_a_run_whose_job_is_deleted_has_ended(waiting: Future[Any], api_server: FakeApi) -> None:
    api_server.remove("batch/jobs", JOB)
    waiting.result(PATIENCE)


@pytest.mark.parametrize(
    "break_off", [FakeApi.end_watches, FakeApi.expire], ids=["server's limit", "410 event"]
)
def test_the_wait_outlasts_a_watch(
    waiting: Future[Any], api_server: FakeApi, break_off: Callable[[FakeApi], None]
) -> None:
    break_off(api_server)
    api_server.wait_for_watch("batch/jobs", 2)
    api_server.put("batch/jobs", job(("Complete", "True")))
    waiting.result(PATIENCE)


def test_the_api_servers_refusal_is_raised(api_server: FakeApi) -> None:
    api_server.fail("GET", "batch/jobs", faults.status(403))
    with pytest.raises(kube.ApiError, match="403"):
        selftest.wait_for_end(kube.Api(), JOB)


@pytest.mark.parametrize(
    ("mode", "launcher"),
    [("mpirun", "mpirun"), ("horovodrun", "horovodrun"), ("elastic", "horovodrun"),
     ("custom", "mpirun")],
)  # fmt: skip
def test_the_test_is_started_as_the_run_itself_where_possible(mode: str, launcher: str) -> None:
    group = {"statefulSet": "w", "number": 1, "maximum": 3, "slots": 2, "revision": "r"}
    run = selftest.bandwidth_run(make_run(mode=mode, groups=[group]))
    assert run.mode == launcher
    assert run.args == ["python3", "/horovod/bin/bandwidth.py"]
    assert [host.name for host in run.hosts] == ["w-0"], "optional hosts are left out"


@pytest.fixture
def ended(pod: MasterPod, monkeypatch: pytest.MonkeyPatch) -> MasterPod:
    """The test's pod, beside a run that finished and whose workers were scaled to 0."""
    pod.put_job(status=job(("Complete", "True"))["status"])
    pod.api.put("apps/statefulsets", {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 0}})
    monkeypatch.setenv("HVD_TESTED_JOB", JOB)
    # How many workers there are while the launcher runs is seen in the requests alone.
    pod.install('printf "%s\\n" "$@" >"$OUT/arguments"')
    return pod


def scales(pod: MasterPod) -> list[int]:
    patches = pod.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    return [request.body["spec"]["replicas"] for request in patches]


@pytest.mark.parametrize(("cleanup", "expected"), [("OnSuccess", [2, 0]), ("Never", [2])])
def test_workers_are_there_for_the_test_and_then_as_cleanup_says(
    ended: MasterPod, cleanup: str, expected: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    ended.environment(cleanup=cleanup)
    assert selftest.main() == 0
    assert scales(ended) == expected
    arguments = (ended.generated.parent / "arguments").read_text().splitlines()
    assert arguments[1] == "4"
    assert arguments[-1].endswith("/bandwidth.py")
    assert capsys.readouterr().out.endswith("] the test passed\n")
    assert ended.stages() == [], "the run's events are not the test's"


def test_a_failed_test_has_the_launchers_exit_code(
    ended: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.install("exit 3")
    ended.environment()
    assert selftest.main() == 3
    assert scales(ended) == [2, 0]
    output = capsys.readouterr()
    assert "] the test failed with exit code 3\n" in output.out
    assert "error: horovodrun ended with exit code 3" in output.err


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "batch/jobs"), ("PATCH", "apps/statefulsets")]
)
@pytest.mark.parametrize(
    "failure", [faults.status(503, "try later"), faults.cut_answer], ids=["503", "cut"]
)
def test_a_test_that_the_api_fails_says_so(
    ended: MasterPod,
    method: str,
    path: str,
    failure: faults.Failure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended.api.fail(method, path, failure)
    ended.environment()
    assert selftest.main() == 1
    assert not (ended.generated.parent / "arguments").exists()
    output = capsys.readouterr()
    assert "the test failed with exit code 1" in output.out
    assert "[hvd] error: " in output.err


def test_workers_that_cannot_be_scaled_down_do_not_fail_the_test(
    ended: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.environment()
    # The first one scales up.
    ended.api.fail("PATCH", "apps/statefulsets", faults.accept)
    ended.api.fail("PATCH", "apps/statefulsets", faults.status(503))
    assert selftest.main() == 0
    assert "cannot scale hvd-worker to 0: 503" in capsys.readouterr().out
