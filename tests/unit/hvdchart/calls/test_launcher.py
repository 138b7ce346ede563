"""The launcher of calls: its release is Helm's, and its calls are made on this machine."""

from __future__ import annotations

import atexit
import io
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import join
from typing import Any

import pytest

import hvdchart
from hvdchart.errors import CallError, HelmError, RunFailedError, SpecError
from tests.fakes.cluster import FakeCluster
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.calls.test_calls import Pod, assert_ended, own_rank, write_pid_and_wait
from tests.unit.hvdchart.runs import JOB, SPEC, event, installed_values, upgrades
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def settings(
    running: FakeCluster, spec: Path, programs: Path, tmp_path: Path
) -> Iterator[dict[str, Any]]:
    """Of a launcher whose kubectl reaches a call server of this machine."""
    running.put("events", event(JOB, "Job", "Training", "", type="Normal"))
    (tmp_path / "pod").mkdir()
    pod = Pod(tmp_path / "pod")
    process = pod.start()
    (programs / "kubectl").write_text(f"#!/bin/sh\nexec {join(pod.command())}\n")
    (programs / "kubectl").chmod(0o755)
    yield {"spec": spec, "output": io.StringIO()}
    process.kill()
    process.wait()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with a module."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "m.py").write_text("x = 1")
    return folder


def test_a_call_has_the_code_as_it_is(
    settings: dict[str, Any], helm: StubProgram, code: Path
) -> None:
    archives = set()
    with hvdchart.Launcher(**settings, code=code) as launcher:
        for number in (1, 2):
            (code / "m.py").write_text(f"x = {number}")
            # Calls with the same code share the upgrade.
            assert launcher(own_rank) == launcher(own_rank) == [0, 1]
            archives.add(installed_values(helm)["code"]["archive"])
            assert len(upgrades(helm)) == len(archives) == number
        assert "uninstall" not in helm.commands()


def test_a_call_has_the_spec_as_it_is(settings: dict[str, Any], helm: StubProgram) -> None:
    with hvdchart.Launcher(**settings) as launcher:
        launcher(own_rank)
        text = settings["spec"].read_text()
        settings["spec"].write_text(text.replace("8Gi", "9Gi"))
        launcher(own_rank)
        assert len(upgrades(helm)) == 2
        assert "uninstall" not in helm.commands()


def test_removal_that_fails_is_repeated_by_the_next_close(
    settings: dict[str, Any], helm: StubProgram
) -> None:
    launcher = hvdchart.Launcher(**settings)
    assert launcher(own_rank) == [0, 1]
    helm.answer("uninstall", errors="Error: timed out", code=1)
    with pytest.raises(HelmError, match="timed out"):
        launcher.close()
    helm.answer("uninstall")
    launcher.close()
    launcher.close()
    assert helm.commands().count("uninstall") == 2


def test_threads_that_call_at_once_share_a_release(
    settings: dict[str, Any], helm: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", closes.append)
    with ThreadPoolExecutor() as threads:
        with helm.hold("upgrade"):
            calls = [threads.submit(hvdchart.launch, own_rank, **settings) for _ in range(2)]
            wait_until(lambda: bool(upgrades(helm)), 30, "Helm installs")
        assert [call.result() for call in calls] == [[0, 1], [0, 1]]
    # Python itself registers the end of temporary folders, once in a process.
    (close,) = [each for each in closes if each.__name__ == "close"]
    assert len(upgrades(helm)) == 1
    close()


def test_close_ends_a_call_of_another_thread(
    settings: dict[str, Any], helm: StubProgram, tmp_path: Path
) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    launcher = hvdchart.Launcher(**settings)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(launcher, write_pid_and_wait, [str(folder)])
        wait_until(lambda: len(list(folder.iterdir())) == 2, 30, "both ranks run")
        launcher.close()
        with pytest.raises(RunFailedError, match="closed"):
            call.result()
    assert_ended(folder)
    assert helm.commands()[-1] == "uninstall"
    with pytest.raises(RunFailedError, match="closed"):
        launcher(own_rank)


def test_launcher_refuses_what_cannot_travel_before_it_looks_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with hvdchart.Launcher() as launcher, pytest.raises(CallError, match="cannot be pickled"):
        launcher(own_rank, [threading.Lock()])


@pytest.mark.parametrize(
    ("changes", "settings", "says"),
    [
        ({"launch": {"mode": "horovodrun"}}, {}, r"launch\.mode: 'horovodrun' takes no calls"),
        ({}, {"workers": 4, "gpus": 0}, "workers, gpus: given beside spec"),
        ({}, {"idle": 0.0}, "idle: 0 s; expected 10 to"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    changes: dict[str, Any], settings: dict[str, Any], says: str
) -> None:
    spec = hvdchart.parse_spec(json.dumps({**SPEC, **changes}))
    with pytest.raises(SpecError, match=says):
        hvdchart.Launcher(spec=spec, **settings)
