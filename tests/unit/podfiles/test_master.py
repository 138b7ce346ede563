"""The master's main program: real sockets, a fake API server, and shell scripts for launchers."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from hvd_pods.common.errors import ConfigurationError, RunError
from hvd_pods.master import kube, main, mesh, progress
from hvd_pods.master.events import EventRecorder
from hvd_pods.master.launch import Launcher
from tests.fakes.faults import TIMEOUT
from tests.ports import find_port
from tests.unit.podfiles.master_pod import MasterPod, read_log
from tests.unit.podfiles.rendezvous import Background, end_wait_at

RECORD_ARGUMENTS = 'printf "%s\\n" "$@" >"$OUT/arguments"'


@pytest.mark.slow
def test_a_run_trains_and_is_over(pod: MasterPod, capsys: pytest.CaptureFixture[str]) -> None:
    pod.install("exit 0")
    assert pod.run() == 0
    assert pod.stages() == ["Started", "HostsReady", "Training", "Finished"]
    assert [event["message"] for event in pod.api.items("core/events")] == [
        "waiting for workers of 4 ranks",
        "2 hosts respond",
        "horovodrun starts 4 ranks on 2 hosts",
        "the training ended with exit code 0",
    ]
    assert {event["type"] for event in pod.api.items("core/events")} == {"Normal"}
    assert pod.recorded() == ("Finished", "")
    assert pod.replicas() == 0
    assert not pod.termination_log.exists()
    lines = read_log(capsys)
    assert lines[0] == "waiting for hosts of 4 ranks, at most 60 s"
    assert lines[1:3] == [
        "host hvd-worker-0 at 127.0.1.1, 2 slots",
        "host hvd-worker-1 at 127.0.1.2, 2 slots",
    ]
    assert lines[-2:] == ["training finished", "workers scaled to 0"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_hosts_that_a_quota_keeps_away_end_the_run_after_one_time_out(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries are left, but each would wait as long for the same pod."""
    end_wait_at(monkeypatch, 1)
    pod.put_job(spec={"backoffLimit": 9})
    pod.workers.stop(1)
    pod.api.remove("core/pods", "hvd-worker-1")
    message = 'pods "hvd-worker-1" is forbidden: exceeded quota: small, requested: pods=1'
    about = {"kind": "StatefulSet", "name": "hvd-worker"}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "FailedCreate"}
    pod.api.put("core/events", {**event, "message": message})
    assert pod.run() == 1
    assert [stage for stage in pod.stages() if stage != "FailedCreate"] == ["Started", "Failed"]
    state, reason = pod.recorded()
    assert state == "Failed"
    assert reason.splitlines() == [
        "1 of 2 hosts did not answer within launch.hostsTimeoutSeconds=60:",
        f"  hvd-worker-1: the pod does not exist: {message}",
        "what to do: request less, or have the namespace's ResourceQuota raised",
    ]
    assert pod.termination_log.read_text() == f"{reason}\n"


@pytest.mark.slow
def test_metrics_show_the_stage_and_the_hosts_during_the_training(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = find_port()
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
    assert "horovod_launches_total 1" in page
    assert "horovod_stalls_total 0" in page


@pytest.mark.slow
def test_the_record_has_the_last_step_that_the_ranks_have_told(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(progress, "LAST_WITHIN", TIMEOUT)
    # The session of the first host, which tells the last step when its input ends.
    session = 'echo "$@" >"$OUT/session"; echo "horovod_step 7"; mkfifo "$OUT/go"; echo >"$OUT/go"'
    pod.install(f'{session}; cat >/dev/null; echo "horovod_step 8"', "ssh")
    pod.install('while ! test -p "$OUT/go"; do :; done; cat "$OUT/go"')
    assert pod.run() == 0
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    assert json.loads(item["data"]["progress"])["step"] == 8
    session = (pod.generated.parent / "session").read_text()
    line, _, seconds = session.rpartition(" ")
    assert line.endswith("hvd-worker-0.hvd python3 -I -S /horovod/bin/progress.py")
    assert 0 <= float(seconds) < TIMEOUT, "the time since the ranks were started"


@pytest.mark.slow
@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_loss_that_is_nan_ends_only_a_run_that_asks_for_that(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, is_wanted: bool
) -> None:
    def follow(told: progress.Progress, hosts: object) -> None:
        told.take("horovod_step 3\thorovod_loss nan", 0.0)

    ended: list[RunError] = []
    monkeypatch.setattr(Launcher, "abort", lambda launcher, problem: ended.append(problem))
    monkeypatch.setattr(progress.Progress, "follow", follow)
    pod.put_job(spec={"backoffLimit": 0})
    pod.install("exit 0")
    assert pod.run(failOnNaN=is_wanted) == int(is_wanted)
    assert len(ended) == int(is_wanted)


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
        served.result(TIMEOUT)
    assert asked == ["/quit after Finished"]


def test_a_failure_is_in_the_log_the_termination_message_and_an_event(
    pod: MasterPod, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = EventRecorder(kube.Api())
    main.announce_failure(ConfigurationError("no mpirun"), recorder)
    recorder.close()
    assert capsys.readouterr().err == "[hvd] error: no mpirun\n"
    assert pod.termination_log.read_text() == "no mpirun\n"
    (event,) = pod.api.items("core/events")
    assert (event["reason"], event["message"], event["type"]) == ("Failed", "no mpirun", "Warning")
