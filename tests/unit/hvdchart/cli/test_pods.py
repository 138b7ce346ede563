"""Commands that look into pods: a kubectl and a Helm that record their calls."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from hvdchart.run.kube.kubectl import IN_CODE, SHELL
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import (
    CREATING,
    JOB,
    LABELS,
    RUNNING,
    STATEFUL_SET,
    pod,
)
from tests.unit.hvdchart.played_runs import meanwhile

pytestmark = pytest.mark.timeout(120)
PROBE = "cpu 1000000 10.0\ncpu 2500000 11.0\nmemory 209715200\n0:hvdchart_step 7\n"
PROBE += "0:hvdchart_samples_per_second 16.25\n0:hvdchart_loss 0.5\n"


@pytest.fixture
def with_timeline(running: FakeCluster) -> FakeCluster:
    """A run that writes its timeline below OUTPUT_PATH."""
    variables = [
        {"name": "OUTPUT_PATH", "value": "/output"},
        {"name": "HOROVOD_TIMELINE", "value": "$(OUTPUT_PATH)/horovod-timeline.json"},
    ]
    template = {"spec": {"containers": [{"name": "worker", "env": variables}]}}
    running.put("statefulsets", {**STATEFUL_SET, "spec": {"replicas": 2, "template": template}})
    return running


def test_exec_runs_the_command_in_the_pod_of_the_rank(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    kubectl.answer("main", code=3)
    done = hvdchart("exec", "hvd", "1", "--context", "main", "--", "nvidia-smi", "-L")
    assert done.code == 3
    assert kubectl.calls[0].arguments == [
        "--context",
        "main",
        "--namespace",
        "team",
        "exec",
        "-i",
        "hvd-worker-1",
        "-c",
        "worker",
        "--",
        *IN_CODE,
        "nvidia-smi",
        "-L",
    ]


@pytest.mark.parametrize(
    ("of", "pod_name"),
    [(JOB, "hvd-worker-1"), ("older", "hvd-worker-0")],
    ids=["record of the run", "record of an older run"],
)
def test_exec_runs_a_shell_in_the_recorded_pod_of_the_rank(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram, of: str, pod_name: str
) -> None:
    record = {"job": of, "workers": json.dumps({"hvd-worker": "1"})}
    running.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": record})
    assert hvdchart("exec", "hvd", "0").code == 0
    expected = [pod_name, "-c", "worker", "--", *IN_CODE, *SHELL]
    assert kubectl.calls[-1].arguments[4:] == expected


def test_exec_names_the_ranks_that_there_are(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    errors = hvdchart("exec", "hvd", "7").errors
    assert "'7'" in errors
    assert "0 to 1" in errors


def test_exec_says_that_a_pod_does_not_run(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    running.put("pods", pod("hvd-worker-1", "worker", CREATING))
    done = hvdchart("exec", "hvd", "1")
    assert (done.code, kubectl.calls) == (7, [])
    assert "hvd-worker-1 of run hvd does not run" in done.errors
    assert "1 of 2 work" in done.errors


def test_exec_says_that_a_run_is_over(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    running.remove("jobs", JOB)
    assert "run hvd is over" in hvdchart("exec", "hvd", "1").errors


def test_top_shows_what_the_pods_say_of_themselves_and_of_their_ranks(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    kubectl.answer("team", PROBE)
    done = hvdchart("top", "hvd")
    assert (done.code, done.errors) == (0, "")
    rows = [line.split() for line in done.output.splitlines()]
    assert rows[0] == ["POD", "CPU", "MEMORY", "RANK", "STEP", "SAMPLES/S"]
    assert rows[1] == ["hvd-worker-0", "1.50", "200Mi", "0", "7", "16.2"]


def gpu_lines(gpu: str, used: int, utilization: str = "") -> str:
    """What a pod says of a GPU of 80 GiB that uses so many MiB."""
    labels = f'{{gpu="{gpu}",name="NVIDIA H100",uuid="GPU-1a2b"}}'
    ratio = f"hvdchart_gpu_utilization_ratio{labels} {utilization}\n" if utilization else ""
    memory = f"hvdchart_gpu_memory_used_bytes{labels} {used << 20}\n"
    return f"{ratio}{memory}hvdchart_gpu_memory_bytes{labels} {80 << 30}\n"


@pytest.mark.parametrize(
    ("lines", "cells"),
    [
        (gpu_lines("0", 500, "0.97"), ["97%", "500Mi/81920Mi"]),
        (gpu_lines("0", 500, "0.97") + gpu_lines("1", 900, "0"), ["0-97%", "900Mi/81920Mi"]),
        # NVML knows no utilization of slices.
        (gpu_lines("0:1", 700) + gpu_lines("0:2", 600), ["-", "700Mi/81920Mi"]),
        (gpu_lines("0", 500, "0.97").replace(f" {80 << 30}", " 0"), ["97%", "-"]),
    ],
    ids=["one", "several", "slices", "no memory"],
)
def test_top_shows_the_lowest_and_highest_use_of_gpus_and_the_fullest_one(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram, lines: str, cells: list[str]
) -> None:
    kubectl.answer("team", PROBE + lines)
    rows = [line.split("  ") for line in hvdchart("top", "hvd").output.splitlines()]
    rows = [[cell.strip() for cell in row if cell] for row in rows]
    assert rows[0] == ["POD", "CPU", "MEMORY", "GPU", "GPU MEMORY", "RANK", "STEP", "SAMPLES/S"]
    assert rows[1] == ["hvd-worker-0", "1.50", "200Mi", *cells, "0", "7", "16.2"]
    assert all("hvd_pods/worker/gpus.py" in call.arguments[-1] for call in kubectl.calls)


def test_top_leaves_out_the_master_of_an_earlier_run(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    running.put("pods", pod("hvd-old-x", "master", RUNNING, job="hvd-master-old"))
    kubectl.answer("team", PROBE)
    assert "hvd-old-x" not in hvdchart("top", "hvd").output


def test_top_leaves_out_what_it_does_not_understand(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    kubectl.answer("team", "cpu x 1\nmemory much\n0:hvdchart_step 7\n")
    rows = [line.split() for line in hvdchart("top", "hvd").output.splitlines()]
    assert rows[1] == ["hvd-worker-0", "-", "-", "0", "7", "-"]


def test_top_fails_when_no_pod_runs(hvdchart: Command, running: FakeCluster) -> None:
    for name in (f"{JOB}-x", "hvd-worker-0", "hvd-worker-1"):
        running.remove("pods", name)
    done = hvdchart("top", "hvd")
    assert done.code == 7
    assert "hvd" in done.errors


STACKS = ["python3", "-I", "-S", "/horovod/bin/hvd_pods/worker/stacks.py"]


def test_stack_asks_the_worker_of_the_rank(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    kubectl.answer("team", "Current thread 0x1 (most recent call first):\n")
    done = hvdchart("stack", "hvd", "1")
    assert done.output == "hvd-worker-1:\nCurrent thread 0x1 (most recent call first):\n"
    assert kubectl.calls[0].arguments[-5:] == [*STACKS, "1"]


def test_stack_asks_all_workers_where_no_rank_is_named(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    kubectl.answer("team", "")
    done = hvdchart("stack", "hvd")
    assert done.output == "hvd-worker-0:\nno rank runs\nhvd-worker-1:\nno rank runs\n"
    assert [call.arguments[-4:] for call in kubectl.calls] == [STACKS] * 2


@pytest.mark.parametrize("command", ["top hvd", "stack hvd", "stack hvd 0"])
def test_command_fails_when_no_pod_answers(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram, command: str
) -> None:
    kubectl.answer("team", errors="error: unable to upgrade connection", code=1)
    done = hvdchart(*command.split())
    assert (done.code, done.errors.count("unable to upgrade connection\n")) == (7, 1)


def test_stack_of_the_master_is_refused(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    done = hvdchart("stack", "hvd", "master")
    assert (done.code, kubectl.calls) == (7, [])


def test_stack_says_that_no_worker_runs(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    for name in ("hvd-worker-0", "hvd-worker-1"):
        running.remove("pods", name)
    done = hvdchart("stack", "hvd")
    assert (done.code, kubectl.calls) == (7, [])


def test_tensorboard_says_how_a_run_gets_one(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    done = hvdchart("tensorboard", "hvd")
    assert done.code == 7
    assert "--set values.tens" in done.errors


def test_tensorboard_prints_the_address_when_its_pod_is_ready(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    running.put("services", {"metadata": {"name": "hvd-tensorboard", "labels": LABELS}})
    kubectl.answer("team", "Forwarding from 1\nHandling connection for 6007\n", code=1)
    running.put("pods", pod("hvd-tensorboard-x", "tensorboard", CREATING))
    calls_before = []

    def serve() -> None:
        running.wait_for("pods", "watch")
        calls_before.extend(kubectl.calls)
        running.put("pods", pod("hvd-tensorboard-x", "tensorboard", RUNNING, ready=True))

    with meanwhile(serve):
        done = hvdchart("tensorboard", "hvd", "--port", "6007")
    assert calls_before == []
    expected = ["port-forward", "service/hvd-tensorboard", "6007:6006"]
    assert kubectl.calls[-1].arguments[-3:] == expected
    assert (done.code, done.output) == (7, "TensorBoard of hvd: http://127.0.0.1:6007/\n")
    # One line for each request of a browser would hide the others.
    assert "Handling" not in done.errors
    assert "port 6007" in done.errors
    assert "exit code 1" in done.errors


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_tensorboard_that_is_ended_ends_kubectl(
    running: FakeCluster, kubectl: StubProgram, sent: signal.Signals
) -> None:
    running.put("services", {"metadata": {"name": "hvd-tensorboard", "labels": LABELS}})
    running.put("pods", pod("hvd-tensorboard-x", "tensorboard", RUNNING, ready=True))
    command = [sys.executable, "-m", "hvdchart", "tensorboard", "hvd"]
    with (
        kubectl.hold("team"),
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process,
    ):
        wait_until(lambda: bool(kubectl.calls), 60, "kubectl forwards the port")
        process.send_signal(sent)
        assert process.wait(30) == (130 if sent == signal.SIGINT else -sent)
        # kubectl has the same standard error: this returns when kubectl has ended, too.
        process.communicate(timeout=30)


def test_timeline_says_how_a_run_gets_one(
    hvdchart: Command, running: FakeCluster, kubectl: StubProgram
) -> None:
    assert "--set horovod.timeline=true" in hvdchart("timeline", "hvd").errors


def test_timeline_says_that_no_pod_has_it(
    hvdchart: Command, with_timeline: FakeCluster, kubectl: StubProgram
) -> None:
    with_timeline.remove("pods", "hvd-worker-0")
    missing = hvdchart("timeline", "hvd")
    assert missing.code == 7
    assert "/output/horovod-timeline.json" in missing.errors


def test_timeline_is_fetched_from_the_first_worker(
    hvdchart: Command, with_timeline: FakeCluster, kubectl: StubProgram, tmp_path: Path
) -> None:
    kubectl.answer("team", "[\n{},\n")
    file = tmp_path / "timeline.json"
    done = hvdchart("timeline", "hvd", "-w", file)
    assert done.code == 0, done.errors
    assert file.read_text() == "[\n{},\n"
    assert kubectl.calls[-1].arguments[-6:] == [
        "hvd-worker-0",
        "-c",
        "worker",
        "--",
        "cat",
        "/output/horovod-timeline.json",
    ]


def test_timeline_is_that_of_rank_0_of_the_newest_run(
    hvdchart: Command,
    with_timeline: FakeCluster,
    kubectl: StubProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = {"job": "hvd-master-old", "workers": json.dumps({"hvd-worker": "1"})}
    with_timeline.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": record})
    kubectl.answer("team", "[\n")
    monkeypatch.chdir(tmp_path)
    hvdchart("timeline", "hvd")
    assert "hvd-worker-0" in kubectl.calls[-1].arguments
    assert (tmp_path / "hvd-timeline.json").read_text() == "[\n"
