"""What the master does with the answers of workers that it asks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from functools import partial

import pytest

from hvd_pods.master import remote
from hvd_pods.shared import paths
from tests.support.fakes.agents import ScriptedAgents
from tests.support.fakes.faults import TIMEOUT
from tests.support.runs import make_run

FIRST, SECOND, *_ = make_run().workers
Ask = Callable[[remote.AgentAccess], int]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo out; echo error >&2; exit 3", (3, "out\nerror")),
        ("exit 4", (4, "exit code 4")),
        ('printf "%s, " "$1" "$2"; cat', (0, "hvd-cpu-0.hvd, python3 -I -S DIR/a.py 'b c', text")),
        # Slower than the looks whether it is still wanted.
        ("sleep 0.1; cat", (0, "text")),
        # Training code can put any program in the place of the worker's Python.
        ("exec yes", (1, "it prints too much")),
    ],
)
def test_program_of_a_worker_gets_its_input_and_answers(
    agents: ScriptedAgents, script: str, answer: tuple[int, str]
) -> None:
    agents.install(script)
    expected = answer[0], answer[1].replace("DIR", str(paths.PROGRAMS))
    answers = remote.call(agents.access, [FIRST], ["a.py", "b c"], b"text", seconds=60.0)
    assert answers == {FIRST: expected}


STAY: Ask = partial(remote.may_continue, workers=[FIRST, SECOND], seconds=TIMEOUT)
KEPT: Ask = partial(remote.are_states_kept, workers=[FIRST, SECOND], seconds=TIMEOUT)
FINISHED: Ask = partial(
    remote.count_finished, workers=[FIRST, SECOND], fence=7, is_stopped=lambda: False
)
LEAVE: Ask = partial(remote.ask_ranks_to_end, workers=[FIRST, SECOND])


@pytest.mark.parametrize(
    ("ask", "usual", "script", "answer"),
    [
        # Ranks may stay where all of each worker run and lose nothing.
        *((STAY, "echo 2", script, False) for script in ("echo 1", "echo 2; exit 1", "")),
        (STAY, "echo 2", "echo warning; echo 2", True),
        # Ranks may be ended for others where each worker keeps the state of all of its own.
        *((KEPT, "echo 2", script, False) for script in ("echo 1", "echo 0", "exit 1", "")),
        (KEPT, "echo 2", "echo warning; echo 2", True),
        # Those have finished whose workers say so of their launch.
        (FINISHED, "echo 0 7 2", "echo 0 7 2", 4),
        *(
            (FINISHED, "echo 0 7 2", script, 2)
            for script in ("echo 0 6 2", "echo 0", "echo 0 7 x", "exit 1")
        ),
        # Those were asked to end that a worker has counted, whatever else is printed.
        (LEAVE, "echo 2", "echo warning; echo 2; echo 'Connection closed.' >&2", 4),
        *((LEAVE, "echo 2", script, 2) for script in ("echo none", "echo 2; exit 1")),
    ],
)
def test_what_workers_say_of_their_ranks_counts_if_it_is_understood(
    agents: ScriptedAgents, ask: Ask, usual: str, script: str, answer: int
) -> None:
    agents.install(f'[ "$1" = {SECOND.address} ] || {{ {usual}; exit; }}; {script}')
    assert ask(agents.access) == answer


@pytest.mark.parametrize(
    ("seconds", "is_stopped", "text"),
    [(0.05, False, " 0 s"), (60.0, True, "end")],
)
def test_worker_that_does_not_answer_in_time_has_failed(
    agents: ScriptedAgents, seconds: float, is_stopped: bool, text: str
) -> None:
    agents.install('[ "$1" = hvd-cpu-1.hvd ] || exec sleep 60')
    workers = [FIRST, SECOND] if not is_stopped else [FIRST]
    failures = remote.call(
        agents.access, workers, ["a.py"], seconds=seconds, is_stopped=lambda: is_stopped
    )
    code, said = failures[FIRST]
    assert code == 1
    assert text in said


def test_stacks_are_logged_and_scripts_have_a_place(
    agents: ScriptedAgents, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [
        {"rank": 1, "shown": "shows its Python stack:\n  a frame", "place": "train.py:3 in main"},
        {"rank": 2, "shown": "has ended", "place": ""},
        # Training code can put any program in the place of the worker's Python.
        {"rank": 7, "shown": "is no rank", "place": "x"},
        {"rank": 1, "place": "x"},
        [],
    ]
    lines = ["a warning", *map(json.dumps, said)]
    agents.install(f"printf '%s\\n' {shlex.join(lines)}")
    places = remote.show_stacks(agents.access, FIRST, [1, 2])
    assert places == [(1, "train.py:3 in main")]
    logged = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    lines = ["a warning", "rank 1 shows its Python stack:", "  a frame", "rank 2 has ended"]
    assert {f"{FIRST.name}: {line}" for line in lines} <= {*logged}


def test_what_workers_say_of_states_that_they_save_is_reported(
    agents: ScriptedAgents, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {FIRST: "echo noise; echo '[hvd +0.1s] step 12 is saved'", SECOND: "exit 1"}
    agents.install(f'[ "$1" = {SECOND.address} ] && {lines[SECOND]}; {lines[FIRST]}')
    remote.save_kept(agents.access, [FIRST, SECOND], is_stopped=lambda: False)
    log = capsys.readouterr().out
    assert f"{FIRST.name}: [hvd +0.1s] step 12 is saved" in log
    assert f"{SECOND.name}: exit code 1" in log
    assert "noise" not in log
