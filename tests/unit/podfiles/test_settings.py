"""The run as the chart describes it to the master, and how errors are reported."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest

from hvd_pods.common import errors, reporting, run
from hvd_pods.common.binding import Binding
from tests.unit.podfiles.copies import FILES
from tests.unit.podfiles.runs import make_run

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


def test_every_field_of_the_charts_document_is_read() -> None:
    run = make_run(
        minRanks=3, maxRanks=9, interface="eth1", cleanup="Always", transport="RDMA", api=False,
        options=["-x"], binding={"to": "core", "coresPerRank": 5, "ranksPerSocket": 6},
        hostsTimeoutSeconds=7, sshPort=2200, record="r", retries=4, lostAfterSeconds=8, code="c",
        requirements=True, stallTimeoutSeconds=9, failOnNaN=True, gracePeriodSeconds=10,
        results={"timeoutSeconds": 11, "onFailure": True},
    )  # fmt: skip
    assert (run.min_ranks, run.max_ranks, run.interface) == (3, 9, "eth1")
    assert (run.cleanup, run.transport, run.api) == ("Always", "RDMA", False)
    assert run.binding == Binding("core", 5, 6)
    assert (run.options, run.args, run.mode) == (["-x"], ["python", "train.py"], "mpirun")
    assert (run.hosts_timeout, run.ssh_port, run.record, run.service) == (7.0, 2200, "r", "hvd")
    assert (run.retries, run.lost_after, run.code, run.requirements) == (4, 8.0, "c", True)
    assert (run.stall_timeout, run.fail_on_nan, run.grace) == (9.0, True, 10.0)
    assert (run.results_within, run.results_on_failure) == (11.0, True)


def test_what_a_document_lacks_is_not_asked_for() -> None:
    """An upgrade may meet a master that an earlier version of the chart describes."""
    run = make_run()
    assert (run.retries, run.lost_after, run.staged) == (0, 0.0, {"hvd-cpu": "", "hvd-gpu": ""})
    assert (run.results_within, run.results_on_failure, run.resumed) == (0.0, False, False)


def test_a_run_and_its_parts_do_not_change() -> None:
    run = make_run()
    for item, field in ((run, "mode"), (run.hosts[0], "name"), (run.binding, "to")):
        with pytest.raises(AttributeError):
            setattr(item, field, "x")


@pytest.mark.parametrize(("mode", "elastic"), [("elastic", True), ("mpirun", False)])
def test_only_the_mode_elastic_is_elastic(mode: str, elastic: bool) -> None:
    assert make_run(mode=mode).elastic is elastic


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


def test_a_termination_message_that_cannot_be_written_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "absent" / "log")
    assert reporting.report_failure(errors.RunError("no mpirun")) == 1
    output = capsys.readouterr()
    assert output.err == "[hvd] error: no mpirun\n"
    assert "cannot write the termination message: " in output.out


def test_log_lines_and_errors_are_flushed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream(io.StringIO):
        flushed = ""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    log, errors = Stream(), Stream()
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    monkeypatch.setattr("sys.stdout", log)
    monkeypatch.setattr("sys.stderr", errors)
    reporting.log("training finished")
    reporting.report_failure(errors.RunError("no mpirun"))
    assert log.flushed.endswith("] training finished\n")
    assert errors.flushed == "[hvd] error: no mpirun\n"


def test_a_log_line_has_the_seconds_since_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reporting, "_START", 100.0)
    monkeypatch.setattr("time.monotonic", lambda: 112.34)
    reporting.log("training finished")
    assert capsys.readouterr().out == "[hvd +12.3s] training finished\n"


def test_the_job_makes_another_master_by_the_codes_of_a_lost_one() -> None:
    template = FILES.parent / "templates" / "job.yaml"
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


def test_nan_is_sure_to_happen_again_and_has_the_exit_code_of_a_failure() -> None:
    problem = errors.NotANumberError()
    assert (problem.exit_code, problem.repeats) == (1, "NaN")


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
