"""The master's main program: real sockets, a fake API server, and shell scripts for launchers."""

from __future__ import annotations

import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import hosts
import kube
import launch
import master
import mesh
import pytest
from events import EventRecorder
from settings import ConfigurationError, Host, Run

from tests.unit.podfiles import fake_api
from tests.unit.podfiles.fake_api import PATIENCE
from tests.unit.podfiles.master_pod import MasterPod

Background = Callable[..., "Future[Any]"]
RECORD_ARGUMENTS = 'printf "%s\\n" "$@" >"$OUT/arguments"'


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the master logged, without the times."""
    lines = capsys.readouterr().out.splitlines()
    return [line.partition("] ")[2] for line in lines if line.startswith("[hvd ")]


def test_a_run_trains_and_is_over(pod: MasterPod, capsys: pytest.CaptureFixture[str]) -> None:
    pod.install("exit 0")
    assert pod.run() == 0
    assert pod.stages() == ["Started", "HostsReady", "Training", "Finished"]
    assert [event["message"] for event in pod.api.items("core/events")] == [
        "waiting for workers of 4 ranks",
        "2 hosts answer",
        "horovodrun starts 4 ranks on 2 hosts",
        "the training ended with exit code 0",
    ]
    assert {event["type"] for event in pod.api.items("core/events")} == {"Normal"}
    assert pod.recorded() == ("Finished", "")
    assert pod.replicas() == 0
    assert not pod.termination_log.exists()
    lines = logged(capsys)
    assert lines[0] == "waiting for hosts of 4 ranks, at most 60 s"
    assert lines[1:3] == [
        "host hvd-worker-0 at 127.0.1.1, 2 slots",
        "host hvd-worker-1 at 127.0.1.2, 2 slots",
    ]
    assert lines[-2:] == ["training finished", "workers scaled to 0"]


def test_the_launcher_finds_the_hosts_the_key_and_the_script(pod: MasterPod) -> None:
    out = pod.generated.parent
    pod.install(
        f'{RECORD_ARGUMENTS}; cp "$OUT"/generated/ssh_config "$OUT"/generated/hostfile "$OUT"'
    )
    assert pod.run() == 0
    arguments = (out / "arguments").read_text().splitlines()
    assert arguments[:4] == ["-np", "4", "--hostfile", str(pod.generated / "hostfile")]
    assert arguments[-2:] == ["python", "train.py"]
    hostfile = (out / "hostfile").read_text()
    assert hostfile == "hvd-worker-0.hvd slots=2\nhvd-worker-1.hvd slots=2\n"
    config = (out / "ssh_config").read_text()
    assert "Host hvd-worker-1.hvd hvd-worker-1\n  HostName 127.0.1.2\n" in config
    assert f"Port {pod.workers.port}\n" in config


def test_a_failed_attempt_with_another_to_follow_keeps_the_workers(pod: MasterPod) -> None:
    pod.install("exit 3")
    assert pod.run(cleanup="Always") == 3
    problem = "horovodrun ended with exit code 3: its last lines above say why"
    assert pod.termination_log.read_text() == f"{problem}\n"
    event = pod.api.items("core/events")[-1]
    assert (event["reason"], event["type"], event["message"]) == ("Failed", "Warning", problem)
    assert pod.recorded() == ("Running", "")
    assert pod.replicas() == 2


def test_the_last_attempt_allowed_fails_the_run(pod: MasterPod) -> None:
    pod.put_job(failed=2)
    pod.install("exit 3")
    assert pod.run(cleanup="Always") == 3
    assert pod.recorded()[0] == "Failed"
    assert "exit code 3" in pod.recorded()[1]
    assert pod.replicas() == 0


def test_a_rank_may_say_that_no_other_attempt_can_help(pod: MasterPod) -> None:
    pod.install("exit 78")
    assert pod.run() == 78
    assert pod.recorded()[0] == "Failed"
    assert pod.replicas() == 2, "OnSuccess keeps the workers of a failed run"


def test_an_image_without_the_launcher_fails_before_hosts_are_waited_for(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(pod.programs))
    for name in ("ssh", "ssh-keygen"):
        pod.install(f'exec /usr/bin/{name} "$@"', name)
    assert pod.run(mode="mpirun") == 78
    assert pod.stages() == ["Failed"]
    assert "no mpirun on PATH" in pod.termination_log.read_text()
    assert "waiting for hosts" not in capsys.readouterr().out


def test_hosts_that_do_not_answer_fail_the_attempt(pod: MasterPod) -> None:
    pod.workers.stop(1)
    assert pod.run(hostsTimeoutSeconds=0.1) == 1
    assert pod.stages() == ["Started", "Failed"]
    assert " of 2 hosts did not answer" in pod.termination_log.read_text()


# The kubelet asks once. A master that does not pass the signal on sees the launcher succeed.
ASK_TO_END = f"kill -TERM $PPID; exec sleep {PATIENCE}"


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
    pod.install(f"exec sleep {PATIENCE}")
    assert pod.run(cleanup="Always") == 128 + signal.SIGTERM
    assert "its pod was deleted or evicted" in pod.termination_log.read_text()


def test_a_master_whose_job_is_being_deleted_leaves_the_workers(pod: MasterPod) -> None:
    pod.put_job(deletionTimestamp="2026-01-01T10:00:00Z")
    pod.install(ASK_TO_END)
    assert pod.run(cleanup="Always") == 143
    assert "removed its Job" in pod.termination_log.read_text()
    assert pod.recorded() == ("Running", "")
    assert pod.replicas() == 2


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
    earlier = {"job": "hvd-master-1", "uid": "uid-0", "time": "2026-01-01T10:00:00Z", **data}
    pod.api.put("core/configmaps", {"metadata": {"name": "hvd-run"}, "data": earlier})
    pod.install('touch "$OUT/launched"')


def test_a_run_that_finished_under_another_job_is_not_repeated(
    pod: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    record_earlier(pod, state="Finished", reason="")
    assert pod.run() == 0
    assert not (pod.generated.parent / "launched").exists()
    (event,) = pod.api.items("core/events")
    result = "this very run finished at 2026-01-01T10:00:00Z already"
    remedy = "change a value to run it again, for instance master.podAnnotations"
    assert (event["reason"], event["type"]) == ("Finished", "Normal")
    assert event["message"] == f"{result}; {remedy}"
    assert logged(capsys) == [f"{result}: nothing to do; {remedy}", "workers scaled to 0"]
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
    assert text.startswith("this very run failed at 2026-01-01T10:00:00Z already: exit code 3; ch")
    assert pod.replicas() == replicas


def test_another_run_of_the_release_is_made(pod: MasterPod) -> None:
    record_earlier(pod, state="Finished", reason="", job="hvd-master-0")
    assert pod.run() == 0
    assert (pod.generated.parent / "launched").exists()


BOOKKEEPING = (
    ("POST", "core/events"), ("PATCH", "core/configmaps"), ("GET", "core/configmaps"),
    ("GET", "batch/jobs"), ("PATCH", "apps/statefulsets"),
)  # fmt: skip


@pytest.mark.parametrize(
    "failure",
    [fake_api.status(503), fake_api.status(429, Retry_After="1"), fake_api.status(403),
     fake_api.reset, fake_api.cut_answer, fake_api.text(200, '{"cut')],
    ids=["503", "429", "403", "reset", "cut", "cut JSON"],
)  # fmt: skip
def test_a_training_that_finished_is_a_success_whatever_the_api_does(
    pod: MasterPod, failure: fake_api.Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    for method, path in BOOKKEEPING:
        pod.api.fail(method, path, failure, times=20)
    pod.install("exit 0")
    assert pod.run() == 0
    assert "training finished" in logged(capsys)


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


def test_metrics_show_the_stage_and_the_hosts_during_the_training(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HVD_METRICS_PORT", str(port))
    monkeypatch.setenv("HVD_METRICS_FILE", "")
    script = (
        "import urllib.request as r, os;"
        f"page = r.urlopen('http://127.0.0.1:{port}/metrics').read();"
        "open(os.environ['OUT'] + '/page', 'wb').write(page)"
    )
    pod.install(f'exec python3 -I -S -c "{script}"')
    assert pod.run() == 0
    page = (pod.generated.parent / "page").read_text().splitlines()
    assert 'horovod_stage{stage="Training"} 1' in page
    assert "horovod_hosts_ready 2" in page


def test_the_meshs_proxy_is_ended_after_the_run(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, background: Background
) -> None:
    asked: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(f"{self.path} after {pod.stages()[-1]}")
            self.send_response(200)
            self.end_headers()

    monkeypatch.setenv("HVD_MESH", "Hold")
    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        for port in list(mesh.PROXIES):
            monkeypatch.delitem(mesh.PROXIES, port)
        monkeypatch.setitem(mesh.PROXIES, proxy.server_port, "/quit")
        served = background(proxy.handle_request)
        pod.install("exit 0")
        assert pod.run() == 0
        served.result(PATIENCE)
    assert asked == ["/quit after Finished"]


def test_an_elastic_runs_list_of_hosts_follows_those_that_come_and_go(
    pod: MasterPod,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = pod.workers.run(1, maximum=2, mode="elastic")
    pod.workers.stop(1)
    write, lists = launch.write_live_hosts, queue.Queue[str]()
    live_hosts = pod.generated / "hosts"

    def write_and_announce(current: list[Host]) -> None:
        write(current)
        lists.put(live_hosts.read_text())

    monkeypatch.setattr(master, "write_live_hosts", write_and_announce)
    (pod.generated / "bin").mkdir()
    rendezvous = hosts.HostRendezvous(run, kube.Api(), lambda: False)
    rendezvous.wait()
    following = background(master.follow_hosts, run, rendezvous)
    pod.workers.start(1)
    assert lists.get(timeout=PATIENCE) == "hvd-worker-0.hvd:2\nhvd-worker-1.hvd:2\n"
    config = (pod.generated / "ssh_config").read_text()
    assert "Host hvd-worker-1.hvd hvd-worker-1\n  HostName 127.0.1.2\n" in config
    pod.workers.stop(0)
    assert lists.get(timeout=PATIENCE) == "hvd-worker-1.hvd:2\n"
    rendezvous.close()
    assert following.result(PATIENCE) is None
    lines = logged(capsys)
    assert "host hvd-worker-1 joined, at 127.0.1.2" in lines
    assert "host hvd-worker-0 left" in lines
    assert len(lines) == 2


def test_an_elastic_run_starts_with_its_list_of_hosts_and_follows_it_to_its_end(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    followers: list[threading.Thread] = []

    def follow(run: Run, rendezvous: hosts.HostRendezvous) -> None:
        followers.append(threading.current_thread())
        follow_hosts(run, rendezvous)

    follow_hosts = master.follow_hosts
    monkeypatch.setattr(master, "follow_hosts", follow)
    pod.install('"$OUT/generated/bin/hosts" >"$OUT/listed"')
    assert pod.run(number=1, maximum=2, mode="elastic") == 0
    assert "hvd-worker-" in (pod.generated.parent / "listed").read_text()
    (follower,) = followers
    assert follower.daemon, "it does not keep the process running"
    follower.join(PATIENCE)
    assert not follower.is_alive()


def test_only_an_elastic_run_has_a_list_of_hosts(pod: MasterPod) -> None:
    pod.install("exit 0")
    assert pod.run() == 0
    assert not (pod.generated / "hosts").exists()


def test_a_failure_is_in_the_log_the_termination_message_and_an_event(
    pod: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    master.announce_failure(ConfigurationError("no mpirun"), EventRecorder(kube.Api()))
    assert capsys.readouterr().err == "[hvd] error: no mpirun\n"
    assert pod.termination_log.read_text() == "no mpirun\n"
    (event,) = pod.api.items("core/events")
    assert (event["reason"], event["message"], event["type"]) == ("Failed", "no mpirun", "Warning")
