"""The caller of calls: its release is Helm's, and its calls are made on this machine."""

from __future__ import annotations

import atexit
import inspect
import json
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import hvdchart
from devtools.common.waiting import wait_until
from hvdchart.calls.call_release import CallRelease
from hvdchart.errors import (
    CallError,
    ClusterError,
    HelmError,
    HvdchartError,
    RunFailedError,
    SpecError,
)
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from hvdchart.script.options import SCRIPT_OPTIONS
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.calls.master import Master
from tests.unit.hvdchart.calls.pod import assert_ended, give_back, own_rank, write_pid_and_wait
from tests.unit.hvdchart.nodes import node
from tests.unit.hvdchart.objects import FAILED, JOB, RUNNING, pod, terminated
from tests.unit.hvdchart.played_runs import SPEC, installed_values, list_upgrades, play_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_call_has_the_code_as_it_is(
    settings: dict[str, Any], helm: StubProgram, code: Path
) -> None:
    archives = set()
    with hvdchart.Caller(**settings, code=code) as caller:
        for number in (1, 2):
            (code / "m.py").write_text(f"x = {number}")
            # Calls with the same code share the upgrade.
            assert caller(own_rank) == caller(own_rank) == [0, 1]
            archives.add(installed_values(helm)["code"]["archive"])
            assert len(list_upgrades(helm)) == len(archives) == number
        assert "uninstall" not in helm.commands()


def test_a_call_has_the_spec_as_it_is(settings: dict[str, Any], helm: StubProgram) -> None:
    with hvdchart.Caller(**settings) as caller:
        caller(own_rank)
        text = settings["spec"].read_text()
        settings["spec"].write_text(text.replace("8Gi", "9Gi"))
        caller(own_rank)
        assert len(list_upgrades(helm)) == 2
        assert "uninstall" not in helm.commands()


def test_a_call_without_kubectl_is_refused_before_the_install(
    settings: dict[str, Any], helm: StubProgram, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / "kubectl").unlink()
    monkeypatch.setenv("PATH", str(programs))
    with hvdchart.Caller(**settings) as caller, pytest.raises(ClusterError, match="kubectl"):
        caller(own_rank)
    assert list_upgrades(helm) == []


def test_calls_are_refused_without_the_right_to_enter_pods(
    settings: dict[str, Any], helm: StubProgram, running: FakeCluster
) -> None:
    running.created_status = {"allowed": False}
    with hvdchart.Caller(**settings) as caller, pytest.raises(ClusterError, match="pods/exec"):
        caller(own_rank)
    assert list_upgrades(helm) == []


def test_a_call_that_cannot_reach_its_pods_ends(settings: dict[str, Any], programs: Path) -> None:
    (programs / "kubectl").write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 1\n")
    made = CallRelease(Cluster.connect(), "hvd", Helm(), str, print, answer_timeout_seconds=0.5)
    with pytest.raises(ClusterError, match="no route"):
        made.connect(lambda: None)


def test_settings_that_mean_the_same_keep_the_pods(
    settings: dict[str, Any], helm: StubProgram, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(code)
    default = {"spec": str(settings["spec"]), "env": {}, "idle": 600, "kwargs": {}}
    for same in ({"code": code}, {"code": "."}, {"code": code, **default}):
        assert hvdchart.launch(own_rank, **{**settings, **same}) == [0, 1]
    assert "uninstall" not in helm.commands()
    hvdchart.close()


def test_other_settings_take_the_place_of_pods_that_are_idle(
    settings: dict[str, Any], helm: StubProgram, code: Path
) -> None:
    """A quota may not have room for both."""
    assert hvdchart.launch(own_rank, **settings) == [0, 1]
    assert hvdchart.launch(own_rank, **settings, code=code) == [0, 1]
    assert helm.commands().count("uninstall") == 1
    hvdchart.close()
    assert helm.commands().count("uninstall") == 2


def test_other_settings_leave_pods_in_which_a_call_is_made(
    settings: dict[str, Any],
    helm: StubProgram,
    programs: Path,
    code: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadPoolExecutor() as threads:
        call = threads.submit(hvdchart.launch, write_pid_and_wait, [str(code)], **settings)
        wait_until(lambda: len(list(code.iterdir())) == 3, 30, "both ranks run")
        (programs / "kubectl").unlink()
        monkeypatch.setenv("PATH", str(programs))
        with pytest.raises(ClusterError, match="kubectl"):
            hvdchart.launch(own_rank, **settings, idle=700)
        assert "uninstall" not in helm.commands()
        hvdchart.close()
        with pytest.raises(RunFailedError, match="closed"):
            call.result()
    assert helm.commands().count("uninstall") == 1


def test_output_goes_to_the_file_of_each_call(settings: dict[str, Any], tmp_path: Path) -> None:
    """Also where the one of an earlier call has the same name, and was closed."""
    for _ in range(2):
        with (tmp_path / "log.txt").open("a") as file:
            assert hvdchart.launch(own_rank, **{**settings, "output": file}) == [0, 1]
    hvdchart.close()


def test_removal_that_fails_is_repeated_by_the_next_close(
    settings: dict[str, Any], helm: StubProgram
) -> None:
    caller = hvdchart.Caller(**settings)
    assert caller(own_rank) == [0, 1]
    helm.answer("uninstall", errors="Error: timed out", code=1)
    with pytest.raises(HelmError, match="timed out"):
        caller.close()
    helm.answer("uninstall")
    caller.close()
    caller.close()
    assert helm.commands().count("uninstall") == 2


def test_threads_that_call_at_once_share_a_release(
    settings: dict[str, Any], helm: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", closes.append)
    with ThreadPoolExecutor() as threads:
        with helm.hold("upgrade"):
            calls = [threads.submit(hvdchart.launch, own_rank, **settings) for _ in range(2)]
            wait_until(lambda: bool(list_upgrades(helm)), 30, "Helm installs")
        assert [call.result() for call in calls] == [[0, 1], [0, 1]]
    # Python itself registers the end of temporary folders, once in a process.
    (close,) = [function for function in closes if function.__name__ == "close"]
    assert len(list_upgrades(helm)) == 1
    close()


def test_close_ends_a_call_of_another_thread(
    settings: dict[str, Any], helm: StubProgram, tmp_path: Path
) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    caller = hvdchart.Caller(**settings)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(caller, write_pid_and_wait, [str(folder)])
        wait_until(lambda: len(list(folder.iterdir())) == 2, 30, "both ranks run")
        caller.close()
        with pytest.raises(RunFailedError, match="closed"):
            call.result()
    assert_ended(folder)
    assert helm.commands()[-1] == "uninstall"
    with pytest.raises(RunFailedError, match="closed"):
        caller(own_rank)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("idle", "600"),
        ("output", "log.txt"),
        ("namespace", 3),
        ("force", "no"),
        ("timeout", True),
        ("workers", 2.5),
    ],
)
def test_setting_of_another_kind_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SpecError, match=setting):
        hvdchart.launch(own_rank, **{setting: value})  # type: ignore[arg-type]


NUMBERS = {"nan": float("nan"), "infinite": float("inf"), "huge": 10**5000, "small": -(10**5000)}


@pytest.mark.parametrize(
    ("setting", "number"),
    [
        *product(["timeout", "idle", "cpu", "workers", "gpus"], NUMBERS),
        *product(["timeout", "idle", "cpu", "workers", "gpus"], [-1, 1e300]),
        ("idle", 9.9),
        ("cpu", 0),
        ("workers", 0),
        ("workers", 10_001),
        ("gpus", 65),
    ],
)
def test_number_that_a_setting_cannot_have_is_refused_by_name(
    setting: str, number: float | str
) -> None:
    value = NUMBERS[number] if isinstance(number, str) else number
    with pytest.raises(SpecError, match=f"(^|: ){setting}"):
        hvdchart.launch(own_rank, image="team/a:1", **{setting: value})  # type: ignore[arg-type]


async def wait_for_nothing() -> None:
    """As a script with asyncio has it."""


def count_up() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "remedy"), [(wait_for_nothing, r"asyncio\.run"), (count_up, "list")]
)
def test_function_whose_result_cannot_travel_is_refused(
    function: Callable[..., Any], remedy: str
) -> None:
    with pytest.raises(CallError, match=remedy):
        hvdchart.launch(function)


def test_caller_refuses_what_cannot_travel_before_it_looks_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with hvdchart.Caller() as caller, pytest.raises(CallError, match="lock"):
        caller(give_back, [threading.Lock()])


@pytest.mark.parametrize(
    ("changes", "settings", "says"),
    [
        ({"launch": {"mode": "direct"}}, {}, r"launch\.mode: 'direct'"),
        ({}, {"workers": 4, "gpus": 0}, "the settings: workers, gpus: .*spec="),
        ({}, {"env": {"A": "b"}}, "the settings: env: .*spec="),
        ({}, {"idle": 0.0}, "idle: .* 10 to"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    changes: dict[str, Any], settings: dict[str, Any], says: str
) -> None:
    spec = hvdchart.parse_spec(json.dumps({**SPEC, **changes}))
    with pytest.raises(SpecError, match=says):
        hvdchart.Caller(spec=spec, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"gpus": "8"}, "gpus: got '8'"),
        ({"env": ["A=1"]}, r"env: got \['A=1'\]"),
        ({"volumes": "data=pvc:x"}, "volumes: got 'data=pvc:x'"),
        ({"workers": 0}, "^workers: got 0"),
        ({"gpus": -1}, "^gpus -1: got -1"),
        (
            {"volumes": {"other": "pvc:y"}},
            "^volumes other=pvc:y: .* `volumes",
        ),
        ({"secrets": "wandb"}, "secrets: got 'wandb'"),
    ],
)
def test_settings_of_no_run_are_refused_by_their_names(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        hvdchart.Caller(**settings)


def test_traceback_of_a_refused_setting_names_no_option_of_the_command() -> None:
    with pytest.raises(SpecError) as caught:
        hvdchart.launch(own_rank, memory="8GB")
    shown = "".join(traceback.format_exception(caught.value))
    assert "memory 8GB: got '8GB'" in shown
    assert "--" not in shown


@pytest.mark.parametrize("force", [False, True])
def test_what_the_nodes_could_never_run_is_refused_before_the_install(
    settings: dict[str, Any], helm: StubProgram, running: FakeCluster, *, force: bool
) -> None:
    running.put("nodes", node("n", "8", "1Gi"))
    with hvdchart.Caller(**settings, force=force) as caller:
        if force:
            assert caller(own_rank) == [0, 1]
        else:
            with pytest.raises(ClusterError, match=r"force=True"):
                caller(own_rank)
    assert bool(list_upgrades(helm)) == force


def test_problem_of_helm_is_worded_with_arguments(
    settings: dict[str, Any], helm: StubProgram
) -> None:
    helm.answer("upgrade", errors='Error: namespaces "team" not found', code=1)
    with (
        hvdchart.Caller(**settings, namespace="team") as caller,
        pytest.raises(HelmError) as caught,
    ):
        caller(own_rank)
    assert "namespace=" in str(caught.value)
    assert "--" not in str(caught.value)
    with (
        hvdchart.Caller(**settings, helm="no-such-helm") as caller,
        pytest.raises(HelmError, match="helm=PATH"),
    ):
        caller(own_rank)


def fail() -> None:
    raise ValueError("of the function")


@pytest.mark.parametrize("function", [fail, threading.Lock, partial(os._exit, 3)])
def test_traceback_of_a_call_that_fails_has_the_callers_lines_alone(
    settings: dict[str, Any], function: Callable[[], object]
) -> None:
    with (
        hvdchart.Caller(**settings) as caller,
        pytest.raises((ValueError, HvdchartError)) as caught,
    ):
        caller(function)
    error: BaseException | None = caught.value
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        assert {frame.filename for frame in frames} <= {__file__}
        error = error.__context__ if error.__cause__ is None else error.__cause__


def test_launch_shows_and_describes_each_setting_of_a_caller() -> None:
    taken = dict(inspect.signature(hvdchart.launch).parameters)
    assert SCRIPT_OPTIONS.keys() <= taken.keys()
    for name, parameter in inspect.signature(hvdchart.Caller).parameters.items():
        assert taken[name] == parameter
    described = inspect.getdoc(hvdchart.launch) or ""
    assert [name for name in taken if f"\n{name}: " not in described] == []


@pytest.mark.parametrize(
    ("called", "args", "kwargs", "says"),
    [
        (hvdchart.launch, [fail], {"wrkrs": 2}, r"launch\(\) got an unexpected .* 'wrkrs'"),
        (hvdchart.launch, [], {}, r"launch\(\) missing a required argument: 'function'"),
        (hvdchart.Caller, [2], {}, r"Caller.__init__\(\) too many positional arguments"),
    ],
)
def test_wrong_arguments_are_refused_in_the_words_of_python(
    called: Callable[..., object], args: list[object], kwargs: dict[str, object], says: str
) -> None:
    with pytest.raises(TypeError, match=f"^{says}"):
        called(*args, **kwargs)


def test_launch_has_the_callers_lines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(HvdchartError) as caught:
        hvdchart.launch(own_rank)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert {frame.filename for frame in frames} == {__file__}


def call_again(caller: hvdchart.Caller, helm: StubProgram, master: Master) -> list[int]:
    """The results of a call for which Helm installs another run."""
    with ThreadPoolExecutor() as threads:
        before = len(list_upgrades(helm))
        with helm.hold("upgrade"):
            call = threads.submit(caller, own_rank)
            wait_until(lambda: len(list_upgrades(helm)) > before, 30, "Helm installs again")
            master.replace()
        return call.result()


def test_calls_continue_after_somebody_has_removed_the_release(
    settings: dict[str, Any], helm: StubProgram, running: FakeCluster, master: Master
) -> None:
    with hvdchart.Caller(**settings) as caller:
        assert caller(own_rank) == [0, 1]
        for kind in ("jobs", "statefulsets", "pods"):
            for name in running.names(kind):
                running.remove(kind, name)
        master.end()
        # The connection may have ended by now, or end during the call.
        with pytest.raises(RunFailedError, match=r"removed|deleted|no objects"):
            caller(own_rank)
        assert call_again(caller, helm, master) == [0, 1]


def test_a_run_that_failed_is_reported_once_and_started_again(
    settings: dict[str, Any], helm: StubProgram, running: FakeCluster, master: Master
) -> None:
    with hvdchart.Caller(**settings) as caller:
        assert caller(own_rank) == [0, 1]
        master.end()
        ended = terminated(1, "boom; send files with `--code`")
        play_run(running, FAILED, pod(f"{JOB}-x", "master", ended, phase="Failed"))
        with pytest.raises(RunFailedError, match="boom; send files with `code=`"):
            caller(own_rank)
        assert call_again(caller, helm, master) == [0, 1]
        assert helm.commands().count("uninstall") == 1


def test_worker_out_of_memory_is_reported_with_the_argument_that_gives_more(
    settings: dict[str, Any], running: FakeCluster
) -> None:
    with hvdchart.Caller(name="hvd", image="a", output=settings["output"]) as caller:
        assert caller(own_rank) == [0, 1]
        last = terminated(137, reason="OOMKilled")
        worker = pod("hvd-worker-1", "worker", RUNNING, ready=True, last=last, restarts=1)
        running.put("pods", worker)
        with pytest.raises(
            RunFailedError, match=r"lost hvd-worker-1: .*OOMKilled.*memory="
        ) as raised:
            caller(partial(os._exit, 3))
    assert "--" not in str(raised.value)


def test_settings_of_a_caller_are_those_of_run(settings: dict[str, Any], helm: StubProgram) -> None:
    settings_of_run: dict[str, Any] = {
        "cpu": 2,
        "memory": "6Gi",
        "env": {"A": "b=c"},
        "secrets": ["keys"],
        "volumes": {"data": "pvc:scans:/in:ro"},
        "settings": ["image.pullSecrets=[mine]"],
        "force": True,
    }
    with hvdchart.Caller(name="hvd", output=settings["output"], **settings_of_run) as caller:
        caller(own_rank)
    assert "a worker requests" not in settings["output"].getvalue()
    sent = installed_values(helm)
    requests = sent["worker"]["resources"]["requests"]
    assert (requests["cpu"], requests["memory"]) == ("2", "6Gi")
    assert sent["imagePullSecrets"] == [{"name": "mine"}]
    assert {"name": "A", "value": "b=c"} in sent["worker"]["env"]
    assert sent["worker"]["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert {"name": "data", "mountPath": "/in", "readOnly": True} in sent["volumeMounts"]
