"""The launcher's process: how it is started, asked to end, and ended."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common.errors import ConfigurationError, LaunchError, LostHostError, RunError
from hvd_pods.master import launch
from tests.unit.hvd_pods.warm.worker import is_alive
from tests.unit.podfiles.runs import make_run
from tests.waiting import wait_until


@pytest.fixture
def launcher() -> Iterator[launch.Launcher]:
    before = signal.getsignal(signal.SIGTERM)
    yield launch.Launcher()
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 5", 5), ("kill -9 $$", 137)]
)
def test_launcher_returns_the_exit_code_and_shows_the_command(
    launcher: launch.Launcher, script: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == code
    assert not launcher.was_stopped()
    assert 0 < launcher.seconds < 60
    assert re.search(rf"\$ sh -c '{re.escape(script)}'$", capfd.readouterr().out.strip())


def test_launcher_runs_in_the_given_environment_and_directory(
    launcher: launch.Launcher, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    command = ["sh", "-c", "echo $GREETING $HOME $(pwd)"]
    assert launcher.run(command, environment) == 0
    assert launcher.run(command, environment, tmp_path) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [lines[1], lines[3]] == [f"hello {Path.cwd()}", f"hello {tmp_path}"]


def test_launcher_refuses_a_program_that_is_not_on_path(
    launcher: launch.Launcher, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=rf"no horovodrun on PATH \({tmp_path}\)"):
        launcher.run(["horovodrun"], {"PATH": str(tmp_path)})


def test_launcher_passes_a_request_to_end_on(launcher: launch.Launcher, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "open(sys.argv[1], 'w').close(); signal.pause()"
    )

    def ask() -> None:
        ready.read_text()
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    code = launcher.run([sys.executable, "-c", script, str(ready)], dict(os.environ))
    asking.join()
    assert (code, launcher.was_stopped()) == (7, True)


def test_launcher_whose_ranks_nobody_asks_is_asked_to_end_at_once(
    launcher: launch.Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the pod's grace period is."""
    monkeypatch.setattr(launch, "SIGNAL_CHECK_EVERY", 0.01)
    launcher.grace = 3600.0
    ready = tmp_path / "ready"
    os.mkfifo(ready)

    def ask() -> None:
        ready.read_text()
        wait_until(lambda: launcher._process, 20, "the launcher has started")
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    script = f"trap 'exit 9' TERM; echo >{ready}; sleep 60 & wait"
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == 9
    asking.join()


def test_launcher_passes_on_a_request_that_comes_while_it_starts(
    launcher: launch.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process exists then, but the handler of the signal does not know it yet."""
    start = subprocess.Popen

    def start_slowly(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    assert launcher.run(["sleep", "20"], dict(os.environ)) == 128 + signal.SIGTERM
    assert launcher.was_stopped()


def test_launcher_starts_nothing_after_a_request_to_end(
    launcher: launch.Launcher, tmp_path: Path
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    started = tmp_path / "started"
    assert launcher.run(["touch", str(started)], dict(os.environ)) == 143
    assert launcher.was_stopped()
    assert not started.exists()


@pytest.mark.parametrize("ends", ["by itself", "killed", "killed soon"])
def test_a_launch_that_is_ended_leaves_nothing(
    launcher: launch.Launcher, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its SSH client waits for a host that is gone; the next launch is another one."""
    is_killed, is_lost = ends != "by itself", ends == "killed soon"
    monkeypatch.setattr(launch, "SIGNAL_CHECK_EVERY", 0.01)
    monkeypatch.setattr(launch, "END_WITHIN", 0.0 if ends == "killed" else 60.0)
    monkeypatch.setattr(launch, "END_WITHOUT_HOSTS_WITHIN", 0.0 if is_lost else 60.0)
    ready, child = tmp_path / "ready", tmp_path / "child"
    os.mkfifo(ready)
    ignores = "trap '' TERM; " if is_killed else "trap 'exit 9' TERM; "
    script = f"{ignores}sleep 60 & echo $! >{child}; echo >{ready}; wait"
    problem = (LostHostError if is_lost else LaunchError)("host w-0 is lost", 1)

    def end() -> None:
        ready.read_text()
        launcher.abort(problem)

    ending = threading.Thread(target=end)
    ending.start()
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == (137 if is_killed else 9)
    ending.join()
    assert launcher.problem is problem
    assert not launcher.was_stopped()
    wait_until(lambda: not is_alive(int(child.read_text())), 60, "the end of the launcher's child")
    launcher.reset()
    assert launcher.run(["true"], dict(os.environ)) == 0
    assert launcher.problem is None


@pytest.mark.slow
def test_a_launch_that_is_ended_has_its_time_for_that(
    launcher: launch.Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemons of the launcher end the ranks on the hosts that are left."""
    looks = itertools.count(1)
    seen = [0]

    def look() -> float:
        seen[0] = next(looks)
        return time.monotonic()

    monkeypatch.setattr(launch, "SIGNAL_CHECK_EVERY", 0.01)
    monkeypatch.setattr(launch, "END_WITHIN", 60.0)
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=look))
    ready, may_end, ended = tmp_path / "ready", tmp_path / "may-end", threading.Event()
    os.mkfifo(ready)
    wait = f"while [ ! -e {may_end} ]; do sleep 0.01; done; exit 9"
    script = f"trap '{wait}' TERM; echo >{ready}; while :; do sleep 0.01; done"

    def end() -> None:
        ready.read_text()
        launcher.abort(LaunchError("rank 1 has failed", 1))
        before = seen[0]
        wait_until(lambda: seen[0] > before + 6 or ended.is_set(), 60, "the master looks at it")
        may_end.touch()

    ending = threading.Thread(target=end)
    ending.start()
    code = launcher.run(["sh", "-c", script], dict(os.environ))
    ended.set()
    ending.join()
    assert code == 9, "the launcher was killed although it had time to end"


def test_a_launch_is_not_begun_when_a_host_is_lost_before(launcher: launch.Launcher) -> None:
    launcher.abort(RunError("host w-0 is lost"))
    assert launcher.run(["sleep", "60"], dict(os.environ)) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("grace", "asked", "code", "seconds"),
    [(20.0, 2, 143, 10), (0.0, 2, 9, 0), (60.0, 0, 9, 45)],
    ids=["ranks end in time", "time is over", "no rank was asked"],
)
def test_ranks_may_save_before_the_launcher_is_asked_to_end(
    launcher: launch.Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], grace: float, asked: int, code: int, seconds: int,
) -> None:  # fmt: skip
    """The launcher ends with 143 after its rank, and with 9 when it is asked to end itself."""
    monkeypatch.setattr(launch, "SIGNAL_CHECK_EVERY", 0.01)
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    os.mkfifo(ready)
    launcher.grace = grace
    hosts: list[Any] = []

    def ask(given: Any) -> int:
        hosts.extend(given)
        return asked

    launcher.ask_ranks, launcher.hosts = ask, lambda: make_run().hosts
    ends = "exit 143" if code == 143 else "sleep 60"
    script = (
        f"trap 'exit 9' TERM; echo >{ready}; while [ ! -e {saved} ]; do sleep 0.01; done; "
        f"{ends} & wait $!"
    )

    def end() -> None:
        ready.read_text()
        wait_until(lambda: launcher._process, 20, "the launcher has started")
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: hosts, 20, "the ranks are asked")
        os.kill(os.getpid(), signal.SIGTERM)
        saved.touch()

    ending = threading.Thread(target=end)
    ending.start()
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == code
    ending.join()
    assert launcher.was_stopped()
    assert [host.name for host in hosts] == ["hvd-cpu-0", "hvd-cpu-1", "hvd-gpu-0"]
    assert f"terminating: the ranks have {seconds} s to save" in capfd.readouterr().out


def test_master_of_an_earlier_epoch_gives_no_notice(
    launcher: launch.Launcher, tmp_path: Path
) -> None:
    """Another master controls the workers: their ranks end now."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    launcher.grace, launcher.ask_ranks = 60.0, lambda _: pytest.fail("ranks were asked")

    def lose() -> None:
        ready.read_text()
        launcher.stop()

    losing = threading.Thread(target=lose)
    losing.start()
    script = f"trap 'exit 9' TERM; echo >{ready}; sleep 60 & wait"
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == 9
    losing.join()


def test_what_is_left_of_the_launchers_session_is_ended() -> None:
    script = "set -m; sleep 60 >/dev/null & echo $!; read"
    with subprocess.Popen(
        ["bash", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as leader:
        assert leader.stdout
        left = int(leader.stdout.readline())
        assert os.getpgid(left) != os.getsid(left) == leader.pid
        launch.end_session(leader.pid)
        wait_until(lambda: not is_alive(left), 60, "it is gone")
