"""The run as the chart describes it to the master, and how errors are reported."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from hvd_pods.common import errors, reporting, run
from tests.unit.hvd_pods.copies import FILES
from tests.unit.hvd_pods.runs import make_run

ELASTIC = [
    {"statefulSet": "hvd-cpu", "number": 2, "maximum": 3, "slots": 2, "revision": "r1"},
    {"statefulSet": "hvd-gpu", "number": 0, "maximum": 1, "slots": 4, "revision": "r2"},
]


def test_hosts_and_ranks_follow_from_the_groups() -> None:
    assert [host.address for host in make_run().hosts] == [
        "hvd-cpu-0.hvd",
        "hvd-cpu-1.hvd",
        "hvd-gpu-0.hvd",
    ]
    assert make_run().ranks == 2 * 2 + 4
    last = make_run().hosts[-1]
    assert last == run.Host("hvd-gpu-0", "hvd-gpu-0.hvd", 4, "hvd-gpu", "r2", False)
    assert make_run().stateful_sets == ["hvd-cpu", "hvd-gpu"]


def test_hosts_beyond_the_number_to_start_with_are_optional() -> None:
    run = make_run(groups=ELASTIC, mode="elastic")
    assert [host.optional for host in run.hosts] == [False, False, True, True]
    assert run.ranks == 4
    assert run.initial_workers == run.needed_workers == {"hvd-cpu": 2, "hvd-gpu": 0}


def test_spares_are_created_and_have_no_ranks_at_first() -> None:
    run = make_run(groups=ELASTIC)
    assert run.ranks == 4
    assert run.needed_workers == {"hvd-cpu": 2, "hvd-gpu": 0}
    assert run.initial_workers == {"hvd-cpu": 3, "hvd-gpu": 1}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RunError("x"), 1),
        (errors.ConfigurationError("x"), 78),
        (errors.InterruptedRunError("x"), 143),
        (errors.LaunchError("x", 5), 5),
    ],
)
def test_each_error_has_the_exit_code_that_the_job_expects(
    error: errors.RunError, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    assert reporting.report_failure(error) == code
    assert (tmp_path / "log").read_text() == "x\n"


def test_a_long_termination_message_is_cut_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet shows 4096 bytes, and would cut off the beginning."""
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    reporting.report_failure(errors.RunError("why: " + "x" * 5000))
    assert (tmp_path / "log").read_text() == "why: " + "x" * 4091


def test_the_job_makes_another_master_by_the_codes_of_a_lost_one() -> None:
    template = FILES.parent / "templates" / "master" / "job.yaml"
    codes = ", ".join(str(code) for code in sorted(errors.LOST_MASTER))
    assert f"operator: NotIn, values: [{codes}]" in template.read_text()


@pytest.mark.parametrize(
    ("mode", "resumed", "ranks"),
    [("elastic", True, 3), ("elastic", False, 8), ("mpirun", True, 8)],
)
def test_only_an_elastic_run_that_was_training_goes_on_with_fewer_ranks(
    mode: str, resumed: bool, ranks: int
) -> None:
    run = dataclasses.replace(make_run(mode=mode, minRanks=3), resumed=resumed)
    assert run.ranks_to_start == ranks


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (None, 0),
        (errors.ConfigurationError("x"), 78),
        (errors.LaunchError("x", 5), 5),
        (errors.InterruptedRunError("x"), 143),
        *((errors.LaunchError("x", code), 1) for code in errors.LOST_MASTER),
    ],
)
def test_ranks_that_end_as_a_lost_master_does_have_failed(
    problem: errors.RunError | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Job would otherwise make another master for them."""
    assert reporting.report_end(problem) == code
    shown = capsys.readouterr().out
    assert shown.endswith(f" with exit code {code}: x\n") if problem else not shown


def test_no_character_of_a_message_ends_the_master_or_controls_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    hostile = f"cannot decode {os.fsdecode(b'caf' + bytes([0xE9]))} \x1b[2J ä\nsecond line"
    reporting.log(hostile)
    assert reporting.report_failure(errors.RunError(hostile)) == 1
    escaped = "cannot decode caf\\udce9 \\x1b[2J ä\nsecond line\n"
    output = capsys.readouterr()
    assert output.out.endswith(escaped)
    assert output.err.endswith(escaped)
    assert (tmp_path / "log").read_text() == escaped
