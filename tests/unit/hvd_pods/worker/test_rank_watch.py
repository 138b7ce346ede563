"""Ranks that are stopped, and the notices by which workers tell the master."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.rank import rank_registry
from hvd_pods.shared import contract, notice_kinds, paths
from hvd_pods.worker import kept_states, rank_watch, stacks
from hvd_pods.worker.rank_watch import RankWatch
from tests.unit.hvd_pods.support.notices import WORKER, Master

Show = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's list of its ranks."""
    monkeypatch.setattr(rank_registry, "RANKS_FOLDER", str(tmp_path / "ranks"))
    monkeypatch.setattr(paths, "GENERATED", str(tmp_path))
    return tmp_path / "ranks"


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    """The master of this worker."""
    return Master(monkeypatch)


@pytest.fixture
def script(master: Master, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The script of rank 3 of run-1."""
    monkeypatch.setenv(contract.RUN_ID, "run-1")
    with subprocess.Popen(["sleep", "600"]) as process:
        rank_registry.register(3, process.pid)
        yield process
        process.kill()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    wait_until(
        lambda: rank_watch.find_stop(process.pid) == notice_kinds.STOPPED, 20, "it is stopped"
    )


@pytest.fixture
def watch(script: subprocess.Popen[bytes]) -> RankWatch:
    """A watch that tells what it sees each time; it has seen that the script runs."""
    made = RankWatch({rank_watch.PERIOD_VARIABLE: "0"})
    made.look()
    return made


@contextmanager
def running_rank(line: str) -> Iterator[subprocess.Popen[bytes]]:
    """A rank whose script has started a shell that does this."""
    with subprocess.Popen(["sh", "-c", f"({line}); true"], start_new_session=True) as process:
        try:
            rank_registry.register(3, process.pid)
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def told(master: Master) -> set[str]:
    """The kinds of the notices that the master has got until now."""
    assert rank_registry.notify(next(rank_registry.running()), kind=notice_kinds.ASKED)
    return {*iter(lambda: master.taken.get(timeout=20)["kind"], notice_kinds.ASKED)}


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """Shows the stacks of ranks: the lines that are printed."""

    def show(*numbers: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["stacks.py", *numbers])
        assert stacks.main() == 0
        return capsys.readouterr().out.splitlines()

    return show


def test_master_is_notified_of_a_rank_that_is_stopped(
    watch: RankWatch, script: subprocess.Popen[bytes], master: Master
) -> None:
    """And for how long, each time."""
    stop(script)
    watch.look()
    watch.look()
    first = master.taken.get(timeout=20)
    second = master.taken.get(timeout=20)
    assert first.pop("seconds") < second.pop("seconds")
    assert first == second == {"kind": "stopped", "rank": 3, "worker": WORKER, "period": 0}


def test_master_is_notified_once_of_a_rank_whose_state_is_in_memory(
    watch: RankWatch, master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "KEPT_FOLDER", tmp_path)
    assert watch.look() == notice_kinds.RANK_WATCH_INTERVAL_SECONDS
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "state-shared.a").touch()
    assert watch.look() < notice_kinds.RANK_WATCH_INTERVAL_SECONDS, (
        "its end costs nothing, so that a stop is seen soon"
    )
    watch.look()
    assert rank_registry.notify(next(rank_registry.running()), kind=notice_kinds.ASKED)
    notice, _ = master.all(2)
    assert (notice["kind"], notice["rank"], notice["worker"]) == (notice_kinds.KEPT, 3, WORKER)


def test_a_rank_that_continues_and_stops_again_is_stopped_anew(
    watch: RankWatch, script: subprocess.Popen[bytes], master: Master
) -> None:
    stop(script)
    watch.look()
    watch.look()
    before = master.all(2)[1]
    script.send_signal(signal.SIGCONT)
    wait_until(lambda: not rank_watch.find_stop(script.pid), 20, "it continues")
    watch.look()
    stop(script)
    watch.look()
    (notice,) = master.all(1)
    assert notice["seconds"] < before["seconds"], "an earlier stop was added"


@pytest.mark.parametrize("period", ["1000", "", "soon"])
def test_master_is_notified_once_in_a_period_of_stall_checks(
    script: subprocess.Popen[bytes], master: Master, period: str
) -> None:
    """By default and where the user's number is none, Horovod's 60 s."""
    watch = RankWatch({rank_watch.PERIOD_VARIABLE: period})
    stop(script)
    watch.look()
    watch.look()
    watch.look()
    assert rank_registry.notify(next(rank_registry.running()), kind=notice_kinds.ASKED)
    assert [notice["kind"] for notice in master.all(1)] == [notice_kinds.ASKED]


def test_master_is_notified_of_a_rank_that_uses_no_cpu(folder: Path, master: Master) -> None:
    watch = RankWatch({rank_watch.PERIOD_VARIABLE: "0", "HVD_FRAMEWORK": "torch"})

    def is_reported() -> bool:
        watch.look()
        return not master.taken.empty()

    with running_rank("sleep 600"):
        wait_until(is_reported, 20, "it has started, and is idle")
        assert told(master) == {"idle"}


def test_rank_computes_where_what_it_has_started_does(folder: Path, master: Master) -> None:
    watch = RankWatch({rank_watch.PERIOD_VARIABLE: "0", "HVD_FRAMEWORK": "torch"})
    with running_rank("while :; do :; done") as process:
        watch.look()
        used = partial(rank_watch.cpu_seconds, [process.pid])
        wait_until(lambda: used()[process.pid] > 0.3, 60, "it runs")
        watch.look()
        assert told(master) == set()


def test_master_is_not_notified_of_idle_ranks_where_a_framework_reports_them(
    folder: Path, master: Master
) -> None:
    watch = RankWatch({rank_watch.PERIOD_VARIABLE: "0"})
    with running_rank("sleep 600"):
        watch.look()
        watch.look()
        assert told(master) == set()


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("content", ["", "3", "[1]", "{{}}", "{}"], ids=str)
def test_no_entry_that_a_script_has_made_up_is_a_rank(folder: Path, content: str) -> None:
    (entry,) = rank_registry.running()
    (folder / "100").write_text(content.format(json.dumps([*entry, 1])))
    (folder / "5").mkdir()
    assert list(rank_registry.running()) == [entry]


@pytest.mark.usefixtures("script")
def test_process_that_got_the_number_of_one_that_has_ended_is_no_rank(folder: Path) -> None:
    entry = json.loads((folder / "3").read_text())
    (folder / "3").write_text(json.dumps([*entry[:2], "1", *entry[3:]]))
    assert list(rank_registry.running()) == []


def test_script_that_has_ended_is_no_rank(script: subprocess.Popen[bytes]) -> None:
    """Also when it is not reaped yet."""
    assert list(rank_registry.running())
    os.kill(script.pid, signal.SIGKILL)
    wait_until(lambda: not list(rank_registry.running()), 20, "it has ended")


def test_rank_without_a_stack_is_described_and_continues(
    script: subprocess.Popen[bytes], show: Show
) -> None:
    (line,) = show("3")
    assert line.startswith("rank 3 ")
    assert script.poll() is None, "the signal has ended it"


def test_rank_that_has_ended_is_named(show: Show) -> None:
    assert show("4") == ["rank 4 has ended"]
    assert json.loads(*show("--json", "4")) == {"rank": 4, "shown": "has ended", "place": ""}


QUEUE = '  File "/usr/lib/python3.11/queue.py", line 171 in get'
PACKAGE = '  File "/horovod/code/.packages/current/site/x.py", line 5 in y'
OWN = '  File "/horovod/code/3c5f/data/load.py", line 41 in next_batch'
MAIN = '  File "/horovod/code/3c5f/train.py", line 88 in main'


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([QUEUE, PACKAGE, OWN, MAIN], "data/load.py:41 in next_batch"),
        # Of no code that travelled: the image has it.
        ([QUEUE, '  File "/app/train.py", line 3 in main'], "/app/train.py:3 in main"),
        ([QUEUE], "/usr/lib/python3.11/queue.py:171 in get"),
        ([], ""),
        (['  File "/app/\x1b[2J.py", line 3 in \u202emain'], r"/app/\x1b[2J.py:3 in \u202emain"),
        ([*[QUEUE] * 100_000, OWN], "/usr/lib/python3.11/queue.py:171 in get"),
    ],
)
def test_place_of_a_stack_is_the_innermost_line_of_the_users_code(
    frames: list[str], place: str
) -> None:
    assert stacks.find_place("\n".join(["Current thread 0x1:", *frames])) == place


@pytest.mark.parametrize("numbers", [["3"], []], ids=["one", "all that run here"])
def test_rank_that_is_stopped_is_described(
    script: subprocess.Popen[bytes], show: Show, numbers: list[str]
) -> None:
    stop(script)
    described = "rank 3 is stopped by a signal: something has sent it SIGSTOP"
    assert show(*numbers) == [described]


@pytest.mark.parametrize(
    ("timeout", "period"), [("0", "15"), ("600", "15"), ("20", "10"), ("1", "1")]
)
def test_horovod_reports_within_half_of_the_stall_timeout(timeout: str, period: str) -> None:
    chosen = rank_watch.choose_period({contract.STALL_TIMEOUT_SECONDS: timeout})
    assert chosen == {rank_watch.PERIOD_VARIABLE: period}


def test_period_stays_where_worker_env_sets_it() -> None:
    given = {contract.STALL_TIMEOUT_SECONDS: "20", rank_watch.PERIOD_VARIABLE: "60"}
    assert rank_watch.choose_period(given) == {}
