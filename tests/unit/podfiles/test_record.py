"""The record of the release's last run, which outlives the run's Job."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hvd_pods.common.errors import RunError
from hvd_pods.master import kube, record
from hvd_pods.master.record import RunRecord
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.unit.podfiles.runs import make_record

ENDED = {
    "run": "run-1", "settings": "settings-1", "job": "hvd-master-1", "uid": "uid-0",
    "state": "Finished", "time": "t", "reason": "",
}  # fmt: skip
NO_ANSWERS = {
    "503": faults.status(503),
    "reset": faults.reset,
    "cut": faults.cut_answer,
    "cut JSON": faults.text(200, '{"data'),
}


@pytest.fixture
def kept(api_server: FakeApi) -> RunRecord:
    api_server.put("core/configmaps", {"metadata": {"name": "hvd-run"}})
    return make_record(kube.Api())


def put(api_server: FakeApi, **data: str) -> None:
    api_server.put("core/configmaps", {"metadata": {"name": "hvd-run"}, "data": data})


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        ({}, True),
        ({"state": "Failed"}, True),
        ({"state": "Running"}, False),
        ({"run": "run-0"}, False),
        # A newer chart has another Job for the same run.
        ({"job": "hvd-master-other"}, True),
        # The Job's own pod was lost after it had recorded the end.
        ({"uid": "uid-1"}, True),
        # An attempt of this very Job that expected to be the last one.
        ({"state": "Failed", "uid": "uid-1"}, False),
        # More memory for the master, for instance.
        ({"state": "Failed", "settings": "settings-0"}, False),
        ({"settings": "settings-0"}, True),
    ],
)
def test_a_run_that_finished_or_failed_with_these_settings_has_ended(
    kept: RunRecord, api_server: FakeApi, change: dict[str, str], ended: bool
) -> None:
    data = {**ENDED, **change}
    put(api_server, **data)
    assert kept.read_earlier_result() == (data if ended else None)


def test_a_release_that_never_ran_has_no_earlier_end(kept: RunRecord) -> None:
    assert kept.read_earlier_result() is None


def test_a_state_is_written_beside_what_others_keep(kept: RunRecord, api_server: FakeApi) -> None:
    put(api_server, other="kept")
    kept.write(record.FAILED, "exit code 3")
    config_map: Any = api_server.find("core/configmaps", "hvd-run")
    data = config_map["data"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", data.pop("time"))
    assert data == {
        "other": "kept", "run": "run-1", "settings": "settings-1", "job": "hvd-master-1",
        "uid": "uid-1", "state": "Failed", "reason": "exit code 3", "attempts": "0",
        "failures": "0", "progress": "", "hosts": "", "results": "",
    }  # fmt: skip
    kept.write(record.FINISHED)
    config_map = api_server.find("core/configmaps", "hvd-run")
    assert (config_map["data"]["state"], config_map["data"]["reason"]) == ("Finished", "")


@pytest.mark.parametrize("code", [403, 404])
def test_without_a_record_or_the_right_to_read_it_the_run_is_made(
    kept: RunRecord, api_server: FakeApi, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.fail("GET", "core/configmaps", faults.status(code))
    assert kept.read_earlier_result() is None
    assert "cannot read the record of earlier runs: " in capsys.readouterr().out


@pytest.mark.parametrize("failure", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_a_record_that_stays_unreadable_fails_the_attempt(
    kept: RunRecord, api_server: FakeApi, failure: faults.Failure
) -> None:
    put(api_server, **ENDED)
    api_server.fail("GET", "core/configmaps", failure)
    with pytest.raises(RunError, match="cannot read whether this run has ended: ") as raised:
        kept.read_earlier_result()
    assert raised.value.exit_code == 1, "the Job makes another attempt"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("failure", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_a_record_that_cannot_be_read_for_a_while_is_waited_for(
    kept: RunRecord, api_server: FakeApi, failure: faults.Failure
) -> None:
    put(api_server, **ENDED)
    api_server.fail("GET", "core/configmaps", failure, times=5)
    assert kept.read_earlier_result() == ENDED


@pytest.mark.parametrize("failure", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_a_record_that_cannot_be_written_is_logged(
    kept: RunRecord,
    api_server: FakeApi,
    failure: faults.Failure,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "RUNNING_WITHIN", 0.0)
    for state in (record.RUNNING, record.FINISHED):
        api_server.fail("PATCH", "core/configmaps", failure)
        kept.write(state)
        assert "cannot write the record of this run: " in capsys.readouterr().out


@pytest.mark.usefixtures("patient")
def test_the_end_is_written_although_the_api_is_away_for_a_while(
    kept: RunRecord, api_server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RUNNING_WITHIN", 0.0)
    api_server.fail("PATCH", "core/configmaps", faults.reset, times=5)
    kept.write(record.FINISHED)
    config_map: Any = api_server.find("core/configmaps", "hvd-run")
    assert config_map["data"]["state"] == "Finished"


def test_renewals_of_the_lease_write_the_last_state(kept: RunRecord) -> None:
    """Of a run that is another Job's, none."""
    assert kept._lease.news() == {}
    kept.write(record.FINISHED)
    kept.write_results("stored")
    news = kept._lease.news()
    assert (news["state"], news["results"]) == ("Finished", "stored")


def test_without_the_api_nothing_is_read_or_written(
    api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    unkept = make_record(None)
    unkept.write(record.RUNNING)
    assert unkept.read_earlier_result() is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"state": "Running", "attempts": "4", "failures": "2"}, (4, 2)),
        # Of a chart that did not count.
        ({"state": "Running"}, (0, 0)),
        ({"run": "run-0", "attempts": "4", "failures": "2"}, (0, 0)),
        ({"settings": "settings-0", "attempts": "4", "failures": "2"}, (0, 0)),
    ],
)
def test_attempts_of_this_very_run_are_counted_on(
    kept: RunRecord, api_server: FakeApi, change: dict[str, str], count: tuple[int, int]
) -> None:
    put(api_server, **{**ENDED, **change})
    kept.read_earlier_result()
    assert kept.count == count
