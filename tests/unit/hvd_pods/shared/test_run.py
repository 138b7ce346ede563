"""The run as the chart describes it to the master, and how errors are reported."""

from __future__ import annotations

import json

import pytest

from hvd_pods.pod import reporting
from hvd_pods.shared import errors, exit_codes
from hvd_pods.shared.run import parse_run
from tests.support.runs import describe_run, make_run

GROUPS = [
    {"stateful_set": "hvd-cpu", "number": 2, "maximum": 3, "slots": 2, "revision": "r1"},
    {"stateful_set": "hvd-gpu", "number": 0, "maximum": 1, "slots": 4, "revision": "r2"},
]


def test_spares_are_there_from_the_start() -> None:
    run = make_run(groups=GROUPS)
    assert [worker.is_spare for worker in run.workers] == [False, False, True, True]
    assert run.ranks == 4
    assert run.needed_workers == {"hvd-cpu": 2, "hvd-gpu": 0}
    assert run.initial_workers == {"hvd-cpu": 3, "hvd-gpu": 1}


@pytest.mark.parametrize("key", [*json.loads(describe_run())])
def test_a_run_of_another_version_of_the_chart_is_an_error(key: str) -> None:
    document = json.loads(describe_run())
    del document[key]
    with pytest.raises((LookupError, TypeError)):
        parse_run(json.dumps(document))


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (None, 0),
        (errors.RunError("x"), 1),
        (errors.ConfigurationError("x"), 78),
        (errors.LaunchError("x", 5), 5),
        (errors.InterruptedRunError("x"), 143),
        *((errors.LaunchError("x", code), 1) for code in exit_codes.LOST_MASTER),
    ],
)
def test_ranks_that_end_as_a_lost_master_does_have_failed(
    problem: errors.RunError | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Job would otherwise make another master for them."""
    assert reporting.report_end(problem) == code
    shown = capsys.readouterr().out
    assert shown.endswith(f" with exit code {code}: x\n") if problem else not shown
