"""The progress that a script tells: the file of a rank, the worker's lines, the record's entry."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common.run import Host
from hvd_pods.master import kube, progress, remote
from hvd_pods.master.progress import Progress
from tests.fakes.api import FakeApi
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.runs import make_record, make_run
from tests.waiting import wait_until

TOLD = "horovod_step 120\nhorovod_steps 500\nhorovod_loss 0.41\nhorovod_images_per_second 16\n"


def test_the_entry_has_the_speed_of_all_ranks_and_the_time_left() -> None:
    kept = Progress()
    assert (kept.entry(), kept.step) == ("", 0)
    # The last step is told twice.
    for now, step in ((10.0, 100), (20.0, 120), (30.0, 120)):
        kept.take(TOLD.replace("120", str(step)).replace("\n", "\t") + "horovod_size 2", now)
        assert ("secondsLeft" in kept.entry()) == (step > 100), "one step has no speed"
    entry = json.loads(kept.entry())
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "step": 120, "steps": 500, "loss": 0.41, "imagesPerSecond": 32.0, "secondsLeft": 190,
    }  # fmt: skip


def test_ranks_that_start_again_are_measured_anew() -> None:
    kept = Progress()
    for now, step in ((10.0, 400), (20.0, 410), (100.0, 10), (101.0, 20)):
        kept.take(f"horovod_step {step}\thorovod_steps 30", now)
    assert json.loads(kept.entry())["secondsLeft"] == 1
    kept.take("horovod_step 30\thorovod_steps 30", 102.0)
    assert json.loads(kept.entry())["secondsLeft"] == 0


def test_only_a_loss_that_is_not_a_number_ends_the_attempt() -> None:
    kept, calls = Progress(), list[str]()
    kept.on_nan = lambda: calls.append("the loss is NaN")
    for loss, number in (("0.4", 0), ("Inf", 0), ("NaN", 1), ("0.3", 1)):
        kept.take(f"horovod_step 3\thorovod_loss {loss}", 1.0)
        assert len(calls) == number, loss
        assert kept.is_nan is (loss == "NaN")


def test_rank_that_does_not_tell_their_number_is_taken_for_the_only_one() -> None:
    kept = Progress()
    kept.take("horovod_step 1\thorovod_images_per_second 16.12345", 1.0)
    assert json.loads(kept.entry())["imagesPerSecond"] == 16.123


def test_without_a_number_of_steps_no_time_is_left() -> None:
    kept = Progress()
    for now in (0.0, 1.0):
        kept.take(f"horovod_step {int(now)}", now)
    assert "secondsLeft" not in json.loads(kept.entry())


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Progress]:
    """Follows the ranks of two hosts with a script in the place of ssh."""
    monkeypatch.setattr(remote, "GENERATED", tmp_path)
    monkeypatch.setattr(progress, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(progress, "AGAIN_AFTER", 0.01)
    monkeypatch.setattr(progress, "LAST_WITHIN", TIMEOUT)
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()

    def follow(script: str) -> Progress:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        kept = Progress()
        kept.follow(lambda: make_run().hosts[:2])
        return kept

    return follow


def test_the_next_host_is_followed_when_a_session_ends(
    followed: Callable[[str], Progress], tmp_path: Path
) -> None:
    note = f'echo "$1" >>{tmp_path}/asked'
    script = 'case "$1" in *cpu-0*) exit 255 ;; esac; echo "horovod_step 7"; exec cat'
    kept = followed(f"{note}; {script}")
    wait_until(kept.entry, TIMEOUT, "the second host tells its step")
    assert (tmp_path / "asked").read_text().split() == ["hvd-cpu-0.hvd", "hvd-cpu-1.hvd"]
    assert json.loads(kept.entry())["step"] == 7
    kept.close(tells_last=False)


def test_worker_is_told_how_long_ago_its_ranks_were_started(
    followed: Callable[[str], Progress], tmp_path: Path
) -> None:
    """Files that are older are of an earlier attempt, whose loss may be NaN."""
    before = time.monotonic()
    kept = followed(f'echo "$2" >{tmp_path}/line; echo "horovod_step 7"; exec cat')
    wait_until(kept.entry, TIMEOUT, "the host tells its step")
    seconds = float((tmp_path / "line").read_text().split()[-1])
    # It is printed with three digits.
    assert 0 <= seconds <= time.monotonic() - before + 0.001
    kept.close(tells_last=False)


def test_the_last_step_is_told_at_the_end(followed: Callable[[str], Progress]) -> None:
    kept = followed('echo "horovod_step 7"; cat >/dev/null; echo "horovod_step 8"')
    wait_until(kept.entry, TIMEOUT, "the host tells its step")
    kept.close(tells_last=True)
    assert json.loads(kept.entry())["step"] == 8


def test_a_master_without_ssh_goes_on(followed: Callable[[str], Progress], tmp_path: Path) -> None:
    kept = followed("exit 0")
    (tmp_path / "bin" / "ssh").unlink()
    kept.close(tells_last=True)
    assert kept.entry() == ""


def test_master_asks_the_hosts_again_where_ssh_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GENERATED", tmp_path)
    monkeypatch.setattr(progress, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(progress, "AGAIN_AFTER", 0.001)
    asked_again, asked, kept = threading.Event(), iter(range(9**9)), Progress()

    def hosts() -> list[Host]:
        if next(asked) == 2:
            asked_again.set()
        return make_run().hosts[:1]

    kept.follow(hosts)
    assert asked_again.wait(TIMEOUT), "it still follows the ranks after two failures"
    kept.close(tells_last=True)
    assert kept.entry() == ""


def test_the_record_has_the_progress_of_the_attempt(api_server: FakeApi) -> None:
    api_server.put("core/configmaps", {"metadata": {"name": "hvd-run"}})
    kept = make_record(kube.Api())
    kept.begin_attempt()
    kept.progress.take("horovod_step 5", 1.0)
    assert json.loads(kept._lease.news()["progress"])["step"] == 5
    kept.write("Finished")
    item: Any = api_server.find("core/configmaps", "hvd-run")
    assert json.loads(item["data"]["progress"])["step"] == 5
    kept.begin_attempt()
    item = api_server.find("core/configmaps", "hvd-run")
    assert item["data"]["progress"] == "", "the steps of the attempt before"
