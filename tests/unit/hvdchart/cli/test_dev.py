"""The command dev, as a process of its own that gets Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import ROOT
from devtools.common.waiting import wait_until
from hvdchart.run.helm_process import WAITING
from hvdchart.text import NEXT_CHANGE
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import Call, StubProgram
from tests.unit.hvdchart.objects import JOB, LABELS, RUNNING, job, pod
from tests.unit.hvdchart.played_runs import SPEC, answer_as, play_run, report_progress

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]
# Several workers write to the claim: the plan has a warning.
WARNED = {**SPEC, "volumes": {"output": {"pvc": "results"}}}


class Dev:
    """A running `hvdchart dev` and the script that it watches."""

    def __init__(
        self,
        folder: Path,
        helm: StubProgram,
        *options: str,
        is_project: bool = False,
        is_script: bool = False,
        **more: Any,
    ) -> None:
        self.script = folder / "train.py"
        self.script.write_text("first")
        self.spec = folder / "run.spec.yaml"
        self.spec.write_text(json.dumps({**WARNED, **more}))
        self._helm = helm
        self.errors = ""
        files = [str(folder)] if is_project else [str(self.spec), "--code", str(self.script)]
        if is_script:
            files = [str(self.script)]
        command = [sys.executable, "-m", "hvdchart", "dev", *files, *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )

    def save(self, text: str) -> None:
        """Save the script in one step, as editors do: nobody reads half of it."""
        beside = self.script.parent.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.script)

    def upgrades(self) -> list[Call]:
        """Each `helm upgrade` so far."""
        return [call for call in self._helm.calls if call.arguments[0] == "upgrade" and call.input]

    def deployed(self) -> list[dict[str, Any]]:
        """The values of each."""
        return [json.loads(call.input) for call in self.upgrades()]

    def wait_for_deployed(self, number: int) -> dict[str, Any]:
        wait_until(lambda: len(self.deployed()) >= number, 60, f"{number} calls of helm upgrade")
        return self.deployed()[number - 1]

    def wait_for_log(self) -> None:
        """Wait for the first line of the master's log."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "first\n"

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> str:
        """End it; all that it has printed to standard error."""
        self.process.kill()
        return self.errors + self.process.communicate()[1]

    def wait_for_error_line(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line
            if text in line:
                return
        raise AssertionError(f"no line with {text!r}")


@pytest.fixture
def start(
    fake_cluster: FakeCluster, helm: StubProgram, tmp_path: Path
) -> Iterator[Callable[..., Dev]]:
    """Starts `hvdchart dev` for a run that trains, and kills it at the end of the test."""
    play_run(fake_cluster, job(), pod(f"{JOB}-x", "master", RUNNING))
    fake_cluster.put("persistentvolumeclaims", {"metadata": {"name": "results"}})
    answer_as(helm, "hvd")
    folder = tmp_path / "project"
    folder.mkdir()
    started: list[Dev] = []

    def start(*options: str, **more: Any) -> Dev:
        started.append(Dev(folder, helm, *options, **more))
        return started[-1]

    yield start
    for dev in started:
        dev.process.kill()
        dev.process.communicate()


def test_dev_builds_the_projects_image_once_for_each_content(
    start: Callable[..., Dev], docker: StubProgram, tmp_path: Path
) -> None:
    """What .dockerignore names is code, and no new image."""
    folder = tmp_path / "project"
    (folder / "Dockerfile").write_text("FROM a\n")
    (folder / ".dockerignore").write_text("*\n!requirements.txt\n")
    dev = start(is_project=True, image={"repository": "host:5000/team/r"})
    tag = dev.wait_for_deployed(1)["image"]["tag"]
    dev.save("second")
    assert dev.wait_for_deployed(2)["image"]["tag"] == tag
    (folder / "requirements.txt").write_text("six\n")
    assert dev.wait_for_deployed(3)["image"]["tag"] != tag
    assert [docker.commands().count(word) for word in ("build", "push")] == [2, 2]


def test_the_first_run_begins_anew_and_is_not_repeated(start: Callable[..., Dev]) -> None:
    values = start("--fail-on-nan").wait_for_deployed(1)
    assert values["launch"]["failOnNaN"] is True
    assert {"name": "HVD_OUTPUT_PER_RUN", "value": "1"} in values["worker"]["env"]
    assert (values["cleanup"], values["master"]["backoffLimit"]) == ("Never", 0)


def test_each_saved_change_is_deployed_also_after_one_that_helm_refuses(
    start: Callable[..., Dev], helm: StubProgram
) -> None:
    dev = start()
    dev.wait_for_log()
    dev.save("second")
    dev.wait_for_error_line("train.py saved: run 2")
    dev.wait_for_deployed(2)
    helm.answer("upgrade", errors="Error: quota exceeded", code=1)
    dev.save("third")
    dev.wait_for_error_line("quota exceeded")
    answer_as(helm, "hvd")
    dev.save("fourth")
    dev.wait_for_deployed(4)
    code = [values["code"] for values in dev.deployed()]
    texts = ("first", "second", "third", "fourth")
    assert code == [{"files": {"train.py": text}} for text in texts]


def test_kubernetes_validates_what_it_has_not_validated_yet(start: Callable[..., Dev]) -> None:
    """It would drop a misspelt field. A warning of the plan is told once."""
    dev = start()
    dev.wait_for_log()
    dev.save("second")
    dev.wait_for_deployed(2)
    dev.spec.write_text(json.dumps({**WARNED, "values": {"worker": {"podSpec": {"hostnam": "x"}}}}))
    dev.save("third")
    dev.wait_for_deployed(3)
    without = "--disable-openapi-validation"
    assert [without in call.arguments for call in dev.upgrades()] == [False, True, False]
    assert dev.kill().count("warning: volumes output are claims") == 1


def test_a_change_that_is_no_python_any_more_is_not_deployed(start: Callable[..., Dev]) -> None:
    """Without the imports of its script, the plan would have another mode, and other workers."""
    dev = start(train={"command": ["python", "train.py"]})
    dev.wait_for_deployed(1)
    dev.wait_for_log()
    dev.save("for i in range(3:")
    dev.wait_for_error_line(NEXT_CHANGE)
    dev.save("second")
    assert dev.wait_for_deployed(2)["code"] == {"files": {"train.py": "second"}}


def test_a_run_that_somebody_else_stops_is_reported(
    start: Callable[..., Dev], fake_cluster: FakeCluster
) -> None:
    dev = start()
    dev.wait_for_log()
    stopped = job()
    stopped["spec"]["suspend"] = True
    fake_cluster.put("jobs", stopped)
    dev.wait_for_error_line("run stopped by somebody else")


def test_a_script_has_the_options_and_arguments_of_run(start: Callable[..., Dev]) -> None:
    """A save that is no Python is told, and the next one runs."""
    dev = start("--name", "hvd", "--workers", "3", "--", "--epochs", "./3", is_script=True)
    first = dev.wait_for_deployed(1)
    assert first["master"]["args"] == ["python3", "train.py", "--epochs", "./3"]
    assert first["worker"]["number"] == 3
    dev.wait_for_log()
    dev.save("x = = 1")
    dev.wait_for_error_line(f"train.py:1: invalid syntax: x = = 1; {NEXT_CHANGE}")
    dev.save("second")
    assert dev.wait_for_deployed(2)["code"] == {"files": {"train.py": "second"}}


def test_dev_says_at_which_step_a_run_has_ended(
    start: Callable[..., Dev], fake_cluster: FakeCluster
) -> None:
    dev = start()
    dev.wait_for_log()
    report_progress(fake_cluster, {"step": 7, "steps": 9, "secondsLeft": 5})
    fake_cluster.put("jobs", job(("Complete", "", "")))
    dev.wait_for_error_line("hvdchart: run finished at step 7 of 9\n")


def test_dev_interrupted_while_helm_works_leaves_nothing(
    start: Callable[..., Dev], helm: StubProgram, fake_cluster: FakeCluster
) -> None:
    """Helm ends with neither revision, and `helm uninstall` knows the objects of one."""
    for kind in ("jobs", "configmaps"):
        metadata = {"name": f"hvd-of-{kind}", "labels": LABELS, "creationTimestamp": "2026-01-01"}
        notes = {"meta.helm.sh/release-name": "hvd", "meta.helm.sh/release-namespace": "team"}
        left = job() if kind == "jobs" else {}
        fake_cluster.put(kind, {**left, "metadata": {**metadata, "annotations": notes}})
    kept = {"name": "mine", "labels": LABELS}
    fake_cluster.put("configmaps", {"metadata": kept})
    with helm.hold("upgrade"):
        dev = start()
        wait_until(lambda: "upgrade" in helm.commands(), 20, "Helm installs the release")
        dev.interrupt()
        dev.wait_for_error_line(WAITING)
        dev.interrupt()
        assert dev.process.wait(30) == 128 + signal.SIGINT
    assert helm.commands()[-1] == "uninstall"
    assert fake_cluster.names("configmaps") == ["mine"]
    assert "hvd-of-jobs" not in fake_cluster.names("jobs")
    assert "release hvd uninstalled from namespace team" in dev.kill()


def test_dev_shows_nothing_of_a_run_that_is_replaced(
    start: Callable[..., Dev], helm: StubProgram, fake_cluster: FakeCluster
) -> None:
    """Its launcher complains about the master's end, and its master about the missing rights."""
    dev = start()
    dev.wait_for_log()
    assert dev.process.stdout is not None
    assert dev.process.stdout.readline() == "last\n"
    with helm.hold("upgrade"):
        dev.save("second")
        dev.wait_for_deployed(2)
        fake_cluster.log(f"{JOB}-x", "mpirun: unexpectedly disconnected", end=True)
    newer = f"{JOB}2"
    fake_cluster.log(f"{newer}-x", "of the second", end=True)
    fake_cluster.put("pods", pod(f"{newer}-x", "master", RUNNING, job=newer))
    fake_cluster.put("jobs", job(name=newer, created="2026-01-02T10:00:00Z"))
    assert dev.process.stdout.readline() == "of the second\n"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_dev_that_is_ended_otherwise_than_by_ctrl_c_leaves_nothing(
    start: Callable[..., Dev], helm: StubProgram, sent: signal.Signals
) -> None:
    """A terminal that is closed sends SIGHUP, once itself and once from its shell."""
    helm.repeat("get", "upgrade")
    dev = start()
    dev.wait_for_log()
    dev.process.send_signal(sent)
    dev.wait_for_error_line("uninstalling release hvd")
    dev.process.send_signal(sent)
    assert dev.process.wait(30) == -sent
    assert helm.commands()[-1] == "uninstall"


def test_dev_refuses_what_cannot_start_unless_forced(
    start: Callable[..., Dev], fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    fake_cluster.remove("persistentvolumeclaims", "results")
    assert start().process.wait(30) == 7
    assert "upgrade" not in helm.commands()
    start("--force").wait_for_deployed(1)


def test_dev_leaves_a_release_that_is_another_commands_by_now(
    start: Callable[..., Dev], helm: StubProgram
) -> None:
    dev = start()
    dev.wait_for_log()
    helm.answer("get", json.dumps({"session": {"id": "of another one"}}))
    dev.interrupt()
    dev.process.wait(30)
    assert "uninstall" not in helm.commands()
    assert "another command" in dev.kill()


def test_dev_leaves_a_release_that_has_come_meanwhile(
    start: Callable[..., Dev], helm: StubProgram
) -> None:
    helm.answer("upgrade", errors="Error: exceeded quota", code=1)
    with helm.hold("upgrade"):
        dev = start()
        wait_until(lambda: "upgrade" in helm.commands(), 30, "helm upgrade")
        helm.answer("get", json.dumps({"revision": 3, "status": "failed"}))
    assert dev.process.wait(30) == 6
    assert "uninstall" not in helm.commands()
