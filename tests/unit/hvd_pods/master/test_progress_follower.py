"""The connection that follows the ranks' progress, with a shell script as the worker's program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvd_pods.master.progress_follower import Pace, ProgressFollower
from hvd_pods.rules.events import ProgressReported
from tests.support.fakes.agents import ScriptedAgents
from tests.support.fakes.faults import TIMEOUT
from tests.support.runs import make_run
from tests.unit.hvd_pods.rules.recorded_events import RecordedEvents

Follow = Callable[[str], ProgressFollower]


@pytest.fixture
def follow(taken: RecordedEvents, agents: ScriptedAgents) -> Iterator[Follow]:
    """Follows the second attempt's ranks on two workers; the agents run the script given."""
    pace = Pace(
        first_delay_seconds=0.0, reconnect_delay_seconds=0.01, last_step_timeout_seconds=TIMEOUT
    )
    started: list[ProgressFollower] = []

    def start(script: str) -> ProgressFollower:
        agents.install(script)
        workers = make_run().workers[:2]
        started.append(ProgressFollower(lambda: agents.access, workers, taken, 2, pace))
        return started[-1]

    yield start
    for follower in started:
        follower.close(wait_for_last_step=False)


def test_next_worker_is_followed_when_a_connection_ends(
    follow: Follow, taken: RecordedEvents, tmp_path: Path
) -> None:
    """All ranks make the same steps. What is not understood is left out."""
    lines = r"hvdchart_step 7\thvdchart_loss nan\nWarning: x\n\377\0\nhvdchart_steps 9\n"
    # A line without an end, as far as it may be long, and the rest of it.
    long = "head -c 5000 /dev/zero | tr '\\0' x"
    note = f'echo "$1" >>{tmp_path}/asked; case "$1" in *cpu-0*) exit 255 ;; esac'
    follow(f"{note}; printf '{lines}'; {long}; printf '\\nhvdchart_step 8\\n'; exec cat")
    taken.wait_for(ProgressReported, 2)
    assert taken.events == [
        ProgressReported(2, {"step": 7, "loss": "nan"}),
        ProgressReported(2, {"step": 8}),
    ]
    assert (tmp_path / "asked").read_text().split() == ["hvd-cpu-0.hvd", "hvd-cpu-1.hvd"]


@pytest.mark.parametrize("wait_for_last_step", [True, False])
def test_last_step_is_waited_for_where_it_is_wanted(
    follow: Follow, taken: RecordedEvents, wait_for_last_step: bool
) -> None:
    follower = follow('echo "hvdchart_step 7"; cat >/dev/null; echo "hvdchart_step 8"')
    taken.wait_for(ProgressReported)
    follower.close(wait_for_last_step=wait_for_last_step)
    steps = [event.progress["step"] for event in taken.of(ProgressReported)]
    assert steps == ([7, 8] if wait_for_last_step else [7])
