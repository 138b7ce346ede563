"""Ranks that are stopped, and the notices by which workers tell the master."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hvd_pods.common import fast_start, notices
from hvd_pods.rank import ranks
from hvd_pods.worker import rank_watch, stacks
from hvd_pods.worker.rank_watch import RankWatch
from tests.unit.hvd_pods.notices import HOST, Master
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's list of its ranks."""
    monkeypatch.setattr(ranks, "FOLDER", str(tmp_path / "ranks"))
    monkeypatch.setattr(fast_start, "GENERATED", str(tmp_path))
    return tmp_path / "ranks"


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    """The master of this worker."""
    return Master(monkeypatch)


@pytest.fixture
def script(master: Master) -> Iterator[subprocess.Popen[bytes]]:
    """A rank's script, of rank 3."""
    with subprocess.Popen(["sleep", "600"]) as process:
        ranks.register(3, process.pid)
        yield process
        process.kill()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: rank_watch.is_stopped(process.pid), 20, "it is stopped")


def test_master_is_told_of_a_rank_that_is_stopped_until_it_goes_on(
    script: subprocess.Popen[bytes], master: Master
) -> None:
    watch = RankWatch({rank_watch.PERIOD: "0"})
    watch.look()
    stop(script)
    watch.look()
    watch.look()
    first = master.taken.get(timeout=20)
    second = master.taken.get(timeout=20)
    for notice in (first, second):
        known = {"kind": "stopped", "rank": 3, "host": HOST, "period": 0}
        assert {name: notice[name] for name in known} == known
    assert first["seconds"] < second["seconds"]
    script.send_signal(signal.SIGCONT)
    wait_until(lambda: not rank_watch.is_stopped(script.pid), 20, "it goes on")
    watch.look()
    stop(script)
    watch.look()
    assert master.taken.get(timeout=20)["seconds"] < second["seconds"], "an earlier stop was added"
    assert master.taken.empty()


@pytest.mark.parametrize("period", ["1000", "", "soon"])
def test_master_is_told_once_in_a_period_of_stall_checks(
    script: subprocess.Popen[bytes], master: Master, period: str
) -> None:
    """By default and where the user's number is none, Horovod's 60 s."""
    watch = RankWatch({rank_watch.PERIOD: period})
    stop(script)
    for _ in range(3):
        watch.look()
    assert ranks.notify(next(ranks.running()), kind=notices.ASKED)
    assert [notice["kind"] for notice in master.all(1)] == [notices.ASKED]


@pytest.mark.parametrize(
    ("framework", "computes", "kinds"),
    [("torch", False, {"idle"}), ("torch", True, set()), ("", False, set())],
)
def test_master_is_told_of_a_rank_that_uses_no_cpu_where_no_framework_tells(
    folder: Path, master: Master, framework: str, computes: bool, kinds: set[str]
) -> None:
    """What a rank has started computes for it."""
    script = "while :; do :; done" if computes else "sleep 600"
    watch = RankWatch({rank_watch.PERIOD: "0", "HVD_FRAMEWORK": framework})

    def is_told() -> bool:
        watch.look()
        return not master.taken.empty()

    command = ["sh", "-c", f"({script}); true"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            ranks.register(3, process.pid)
            watch.look()
            if computes:
                used = partial(rank_watch.cpu_seconds, [process.pid])
                wait_until(lambda: used()[process.pid] > 0.3, 60, "it runs")
            elif kinds:
                wait_until(is_told, 20, "it has started, and is idle")
            watch.look()
            assert ranks.notify(next(ranks.running()), kind=notices.ASKED)
            told = iter(lambda: master.taken.get(timeout=20)["kind"], notices.ASKED)
            assert set(told) == kinds
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_only_what_runs_and_no_entry_that_a_script_has_made_up_is_a_rank(
    script: subprocess.Popen[bytes], folder: Path
) -> None:
    (entry,) = ranks.running()
    for number, content in enumerate(["", "3", "[1]", "{}", json.dumps([*entry, 1])]):
        (folder / str(100 + number)).write_text(content)
    (folder / "5").mkdir()
    assert list(ranks.running()) == [entry]
    other = json.loads((folder / "3").read_text())
    # Another process that got the number of one that has ended.
    (folder / "3").write_text(json.dumps([*other[:2], "1", *other[3:]]))
    assert list(ranks.running()) == []
    (folder / "3").write_text(json.dumps(other))
    os.kill(script.pid, signal.SIGKILL)
    # Not reaped yet.
    wait_until(lambda: not list(ranks.running()), 20, "it has ended")


def test_ranks_without_a_stack_are_described(
    script: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["stacks.py", "3", "4"])
    assert stacks.main() == 0
    assert script.poll() is None, "the signal has ended it"
    stop(script)
    stacks.main()
    cold, gone, stopped, _ = capsys.readouterr().out.splitlines()
    assert cold.startswith("rank 3 shows no Python stack: ")
    assert gone == "rank 4 has ended"
    assert stopped == "rank 3 is stopped by a signal: something has sent it SIGSTOP"
    monkeypatch.setattr("sys.argv", ["stacks.py"])
    stacks.main()
    assert capsys.readouterr().out == f"{stopped}\n", "all ranks that run here"
