"""The session that follows the ranks' progress, with a shell script in the place of ssh."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvd_pods.master import progress
from hvd_pods.master.progress import ProgressFollower
from hvd_pods.rules.messages import ProgressReported
from tests.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.rules.told import Told
from tests.unit.hvd_pods.runs import make_run
from tests.waiting import wait_until

Follow = Callable[[str], ProgressFollower]


@pytest.fixture
def follow(
    told: Told, ssh: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Follow]:
    """Follows the second attempt's ranks on two hosts; `ssh` is the script given."""
    monkeypatch.setattr(progress, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(progress, "AGAIN_AFTER", 0.01)
    monkeypatch.setattr(progress, "LAST_WITHIN", TIMEOUT)
    before, started = {*threading.enumerate()}, list[ProgressFollower]()

    def start(script: str) -> ProgressFollower:
        ssh(script)
        started.append(ProgressFollower(make_run().hosts[:2], told, 2))
        return started[-1]

    yield start
    for follower in started:
        follower.close(tells_last=False)
    for thread in {*threading.enumerate()} - before:
        if thread.name == "follow-progress":
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def test_next_host_is_followed_when_a_session_ends(
    follow: Follow, told: Told, tmp_path: Path
) -> None:
    """All ranks make the same steps: one host at a time is enough."""
    note = f'echo "$1" >>{tmp_path}/asked'
    follow(f'{note}; case "$1" in *cpu-0*) exit 255 ;; esac; echo "horovod_step 7"; exec cat')
    assert told.wait_for(ProgressReported) == ProgressReported(2, {"step": 7})
    assert (tmp_path / "asked").read_text().split() == ["hvd-cpu-0.hvd", "hvd-cpu-1.hvd"]


def test_each_line_is_told_and_what_is_not_understood_is_left_out(
    follow: Follow, told: Told
) -> None:
    lines = r"horovod_step 7\thorovod_loss nan\nWarning: x\n\377\0\nhorovod_steps 9\n"
    # A line without an end, as far as it may be long, and the rest of it.
    long = "head -c 5000 /dev/zero | tr '\\0' x"
    follow(f"printf '{lines}'; {long}; printf '\\nhorovod_step 8\\n'; exec cat")
    told.wait_for(ProgressReported, 2)
    assert [event.progress for event in told.of(ProgressReported)] == [
        {"step": 7, "loss": "nan"},
        {"step": 8},
    ]


@pytest.mark.parametrize("tells_last", [True, False])
def test_last_step_is_waited_for_where_it_is_wanted(
    follow: Follow, told: Told, tells_last: bool
) -> None:
    follower = follow('echo "horovod_step 7"; cat >/dev/null; echo "horovod_step 8"')
    told.wait_for(ProgressReported)
    follower.close(tells_last=tells_last)
    steps = [event.progress["step"] for event in told.of(ProgressReported)]
    assert steps == ([7, 8] if tells_last else [7])


def test_session_that_does_not_end_is_given_up(
    follow: Follow, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the host is gone: the end of the attempt waits a moment for it."""
    monkeypatch.setattr(progress, "LAST_WITHIN", 0.01)
    follower = follow(f'echo $$ >{tmp_path}/pid; echo "horovod_step 7"; exec sleep 60')
    told.wait_for(ProgressReported)
    follower.close(tells_last=True)
    process = Path("/proc") / (tmp_path / "pid").read_text().strip()
    wait_until(lambda: not process.exists(), TIMEOUT, "the session has ended")
