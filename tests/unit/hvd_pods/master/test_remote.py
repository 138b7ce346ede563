"""What the master does with the answers of workers that it asks over SSH."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hvd_pods.common import paths
from hvd_pods.master import remote
from tests.unit.hvd_pods.runs import make_run

FIRST, SECOND, *_ = make_run().hosts


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
def test_program_of_a_host_gets_its_input_and_answers(
    ssh: Callable[[str], None], script: str, answer: tuple[int, str]
) -> None:
    ssh(script)
    expected = answer[0], answer[1].replace("DIR", str(paths.PROGRAMS))
    assert remote.call([FIRST], ["a.py", "b c"], b"text", seconds=60.0) == {FIRST: expected}


@pytest.mark.parametrize(
    ("script", "may_stay"),
    [("echo warning; echo 2", True), ("echo 1", False), ("echo 2; exit 1", False), ("", False)],
)
def test_ranks_may_stay_where_all_of_each_host_run_and_lose_nothing(
    ssh: Callable[[str], None], script: str, may_stay: bool
) -> None:
    ssh(f'[ "$1" = {SECOND.address} ] || {{ echo 2; exit; }}; {script}')
    assert remote.may_stay([FIRST, SECOND]) is may_stay


@pytest.mark.parametrize(
    ("script", "number"),
    [("echo 0 7 2", 4), ("echo 0 6 2", 2), ("echo 0", 2), ("echo 0 7 x", 2), ("exit 1", 2)],
)
def test_ranks_have_finished_whose_hosts_say_so_of_their_launch(
    ssh: Callable[[str], None], script: str, number: int
) -> None:
    ssh(f'[ "$1" = {SECOND.address} ] || {{ echo 0 7 2; exit; }}; {script}')
    assert remote.count_finished([FIRST, SECOND], 7) == number


@pytest.mark.parametrize(
    ("seconds", "is_stopped", "text"),
    [(0.05, False, "no answer within 0 s"), (60.0, True, "asked to end")],
)
def test_host_that_does_not_answer_in_time_has_failed(
    ssh: Callable[[str], None], seconds: float, is_stopped: bool, text: str
) -> None:
    ssh('[ "$1" = hvd-cpu-1.hvd ] || exec sleep 60')
    hosts = [FIRST, SECOND] if not is_stopped else [FIRST]
    failures = remote.call(hosts, ["a.py"], seconds=seconds, is_stopped=lambda: is_stopped)
    assert failures[FIRST] == (1, text)


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ("echo 2", 4),
        ("echo warning; echo 2; echo 'Connection closed.' >&2", 4),
        ("echo none", 0),
        ("echo 2; exit 1", 0),
    ],
)
def test_ranks_that_were_asked_to_end_are_counted_whatever_else_is_printed(
    ssh: Callable[[str], None], script: str, asked: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh(script)
    assert remote.ask_ranks([FIRST, SECOND]) == asked
    assert ("cannot ask the ranks" in capsys.readouterr().out) == (not asked)
