"""The calls for the record and for the Job: what is written, refused, and waited for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from hvd_pods.cluster import kube
from hvd_pods.master import record_io
from hvd_pods.master.record_io import RecordClient
from hvd_pods.rules.effects import ReadJob, ReadRecord, ReleaseRecord, WriteRecord
from hvd_pods.rules.events import (
    JobRead,
    RecordChanged,
    RecordFailed,
    RecordPurpose,
    RecordRead,
    RecordReleased,
    RecordWritten,
)
from hvd_pods.rules.job_state import DELETED, REPLACED, UNREADABLE, JobKind, JobReading
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared.contract import LEASE, RENEWED
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.support.runs import make_run
from tests.unit.hvd_pods.support.call_limits import ONCE
from tests.unit.hvd_pods.support.master_pod import JOB

PATH = "core/configmaps/hvd-run"
COMPONENT = "app.kubernetes.io/component=master"
INSTANCE = "app.kubernetes.io/instance=hvd"
RUN = make_run(master_selector=f"{COMPONENT},{INSTANCE}")
OWN = {"holder": "own", "holderJob": "hvd-master-1", "holderUid": "uid-1"}
OTHER = {"holder": "other", "holderJob": "hvd-master-2", "holderUid": "uid-2", "fence": "9"}
RELEASE = ReleaseRecord({"state": "Finished"}, 7)


END = WriteRecord(RecordPurpose.END_RUN, {"state": "Finished"}, 7, is_holder=True)
DELETED_AT = "2026-01-01T10:00:00Z"
GOING = {"metadata": {"name": JOB, "deletionTimestamp": DELETED_AT}, "spec": {}}


class Record:
    """The record in the API server, and clients of masters."""

    def __init__(self, api_server: FakeApi) -> None:
        self.api = api_server
        self.put()

    def put(self, *, of: str = "uid of the record", **data: str) -> None:
        metadata = {"name": "hvd-run", "uid": of}
        self.api.put("core/configmaps", {"metadata": metadata, "data": data})

    def put_job(self, **metadata: str) -> None:
        metadata = {"name": JOB, "uid": "uid-1", **metadata}
        self.api.put("batch/jobs", {"metadata": metadata, "spec": {}})

    def put_jobs(self, jobs: list[dict[str, str]]) -> None:
        """Put the Job with this metadata, if there is one."""
        for metadata in jobs:
            self.put_job(**metadata)

    def remove(self) -> None:
        self.api.remove("core/configmaps", "hvd-run")

    @property
    def data(self) -> dict[str, str]:
        found = self.api.find("core/configmaps", "hvd-run")
        assert found
        return {**found["data"]}

    def client(self) -> RecordClient:
        return RecordClient(kube.Api(ONCE), Assignment(RUN, "own", "hvd-master-1", "uid-1"))

    def held(self) -> RecordClient:
        """A client of the master that holds the record."""
        made = self.client()
        made.read(ReadRecord())
        assert made.write(take(state="Running")) == RecordWritten(RecordPurpose.TAKE)
        return made

    def patches(self) -> int:
        return len(self.api.asked("PATCH", PATH))


def take(changes: int = 0, retry_seconds: float | None = 0.0, **data: str) -> WriteRecord:
    return WriteRecord(
        RecordPurpose.TAKE, data, 7, is_holder=True, changes=changes, retry_seconds=retry_seconds
    )


@pytest.fixture
def record(api_server: FakeApi) -> Record:
    return Record(api_server)


@pytest.fixture
def _job_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_JOB", JOB)


def read_job(retry_seconds: float = 0.0) -> JobReading:
    """The Job as decisions get it."""
    answer = record_io.read_job(
        kube.Api(ONCE), RUN, ReadJob(retry_seconds), second_read_delay_seconds=0.0
    )
    assert isinstance(answer, JobRead)
    return answer.job


def put_next_master(api_server: FakeApi) -> None:
    """The master of another Job, as an upgrade makes it."""
    labels = {
        "app.kubernetes.io/instance": "hvd",
        "app.kubernetes.io/component": "master",
        "batch.kubernetes.io/controller-uid": "uid-2",
    }
    api_server.put("core/pods", {"metadata": {"name": "next", "labels": labels}})


@pytest.mark.parametrize(("code", "is_temporary"), [(403, False), (503, True)], ids=str)
def test_record_that_cannot_be_read_or_written_is_reported(
    record: Record, code: int, is_temporary: bool
) -> None:
    record.api.fail("GET", PATH, faults.status(code, "no"))
    record.api.fail("PATCH", PATH, faults.status(code, "no"))
    failed = (code, f"{code}: no", is_temporary)
    assert record.client().read(ReadRecord()) == RecordFailed(RecordPurpose.READ, *failed)
    assert record.client().write(take(state="Running")) == RecordFailed(RecordPurpose.TAKE, *failed)
    assert record.data == {}


def test_holder_adds_its_name_fence_number_and_time_to_the_record(
    record: Record,
) -> None:
    record.put(other="kept", state="Failed")
    record.held()
    data = record.data
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", data.pop("renewed"))
    assert data == {**OWN, "fence": "7", "state": "Running", "other": "kept"}


def test_renewal_writes_a_later_time_and_the_present_fence_number(record: Record) -> None:
    client = record.held()
    renewed = record.data["renewed"]
    assert client.write(WriteRecord(RecordPurpose.RENEW, {}, 8, is_holder=True)) == RecordWritten(
        RecordPurpose.RENEW
    )
    assert record.data["renewed"] > renewed
    assert record.data["fence"] == "8"


def test_master_that_does_not_hold_the_record_leaves_the_holder(record: Record) -> None:
    record.put(**OTHER)
    data = {"state": "Failed", "reason": "E: \x1b[31m\ud800"}
    assert record.client().write(
        WriteRecord(RecordPurpose.END_RUN, data, 7, is_holder=False)
    ) == RecordWritten(RecordPurpose.END_RUN)
    # No character controls a terminal or cannot be encoded.
    assert record.data == {**OTHER, "state": "Failed", "reason": r"E: \x1b[31m\ud800"}


def test_record_that_another_master_has_taken_is_not_overwritten(record: Record) -> None:
    """Neither by the write that was refused, nor by others that were asked for before."""
    client = record.held()
    record.put(**OTHER)
    assert client.write(take(state="Finished")) == RecordChanged(RecordPurpose.TAKE, OTHER, 1)
    before = record.patches()
    late = [
        WriteRecord(purpose, {"state": "Finished"}, 7, is_holder=True)
        for purpose in (RecordPurpose.END_RUN, RecordPurpose.RENEW)
    ]
    assert [client.write(write) for write in late] == [
        RecordChanged(RecordPurpose.END_RUN, OTHER, 1),
        RecordChanged(RecordPurpose.RENEW, OTHER, 1),
    ]
    assert record.patches() == before
    assert record.data == OTHER


def test_record_is_taken_by_a_master_that_has_decided_about_its_holder(record: Record) -> None:
    client = record.held()
    record.put(**OTHER)
    client.write(take())
    assert client.write(take(changes=1)) == RecordWritten(RecordPurpose.TAKE)
    assert record.data["holder"] == "own"


def test_record_that_a_person_changed_is_written_after_a_decision(
    record: Record,
) -> None:
    client = record.held()
    record.put(holder="own", note="a person's")
    assert isinstance(client.write(take()), RecordChanged)
    assert client.write(take(changes=1)) == RecordWritten(RecordPurpose.TAKE)
    assert record.data["note"] == "a person's"


def test_record_is_given_back_with_the_last_news(record: Record) -> None:
    """Such as the end of the run, which could not be written while the API server was away."""
    assert record.held().release(RELEASE) == RecordReleased()
    assert (record.data["holder"], record.data["state"]) == ("", "Finished")


def test_record_is_given_back_once(record: Record) -> None:
    client = record.held()
    client.release(RELEASE)
    before = record.patches()
    assert client.release(RELEASE) == RecordReleased()
    assert record.patches() == before


def test_record_that_cannot_be_given_back_does_not_keep_the_master(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    client = record.held()
    record.api.fail("PATCH", PATH, faults.status(503))
    assert client.release(RELEASE) == RecordReleased()
    assert "503" in capsys.readouterr().out


def test_record_that_somebody_has_changed_is_given_back_as_well(record: Record) -> None:
    client = record.held()
    record.put(**OWN, note="a person's")
    assert client.release(RELEASE) == RecordReleased()
    assert (record.data["holder"], record.data["note"]) == ("", "a person's")


@pytest.mark.usefixtures("_job_name")
def test_record_that_was_deleted_is_made_again_by_who_reads_it(record: Record) -> None:
    record.put_job()
    record.remove()
    assert record.client().read(ReadRecord()) == RecordRead({})
    found = record.api.find("core/configmaps", "hvd-run")
    assert found
    assert found["metadata"]["labels"] == {
        "app.kubernetes.io/component": "master",
        "app.kubernetes.io/instance": "hvd",
    }


@pytest.mark.usefixtures("_job_name")
def test_record_that_was_deleted_is_held_again_by_its_holder(record: Record) -> None:
    record.put_job()
    client = record.held()
    record.remove()
    assert client.write(END) == RecordChanged(RecordPurpose.END_RUN, {}, 1)
    assert client.write(replace(END, changes=1)) == RecordWritten(RecordPurpose.END_RUN)
    assert (record.data["holder"], record.data["state"]) == ("own", "Finished")


@pytest.mark.usefixtures("_job_name")
@pytest.mark.parametrize(
    "jobs", [[], [{"uid": "uid-2"}], [{"deletionTimestamp": DELETED_AT}]], ids=str
)
def test_record_of_an_uninstalled_release_is_not_made_again(
    record: Record, jobs: list[dict[str, str]]
) -> None:
    """The next installation could not make its own."""
    record.put_jobs(jobs)
    client = record.held()
    record.remove()
    failed = client.write(END)
    assert isinstance(failed, RecordFailed)
    assert failed.status == 404
    assert not record.api.find("core/configmaps", "hvd-run")


@pytest.mark.usefixtures("_job_name")
@pytest.mark.parametrize(
    ("jobs", "is_other"),
    [([], True), ([{"uid": "uid-2"}], True), ([{}], False)],
    ids=["no Job", "another Job", "the same Job"],
)
def test_record_of_a_later_release_is_left_alone(
    record: Record, jobs: list[dict[str, str]], is_other: bool
) -> None:
    """An uninstall and an installation come between two writes; or a tool repairs the release."""
    record.put_jobs(jobs)
    client = record.held()
    record.remove()
    record.put(of="another")
    assert client.write(END) == RecordChanged(RecordPurpose.END_RUN, {}, 1, is_other)
    client.write(replace(END, changes=1))
    client.release(RELEASE)
    assert (record.data == {}) is is_other


@pytest.mark.parametrize("uid", ["uid-1", "of another Job"])
def test_lease_is_that_of_this_masters_own_job(record: Record, uid: str) -> None:
    notes = {LEASE: "600", RENEWED: "7"}
    metadata = {"name": JOB, "uid": uid, "annotations": {**notes, "other": "x"}}
    record.api.put("batch/jobs", {"metadata": metadata, "spec": {}})
    job = record_io.read_lease(kube.Api(ONCE)).job
    is_own = uid == "uid-1"
    assert job.kind == (JobKind.FOUND if is_own else JobKind.REPLACED)
    assert job.annotations == (notes if is_own else {})


def test_lease_that_cannot_be_read_is_not_known(record: Record) -> None:
    record.put_job()
    record.api.fail("GET", f"batch/jobs/{JOB}", faults.status(403, "no"))
    assert record_io.read_lease(kube.Api(ONCE)).job == UNREADABLE


def test_the_job_is_read_without_its_environment(api_server: FakeApi) -> None:
    container = {"name": "master", "env": [{"name": "TOKEN", "value": "secret"}]}
    annotations = {"hvdchart/cleanup": "Never", "kubectl/last-applied": "secret"}
    spec = {"backoffLimit": 2, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": JOB, "annotations": annotations}
    api_server.put("batch/jobs", {"metadata": metadata, "spec": spec, "status": {"failed": 1}})
    assert read_job().job == {
        "metadata": {"name": JOB, "annotations": {"hvdchart/cleanup": "Never"}},
        "spec": {"backoffLimit": 2},
        "status": {"failed": 1},
    }


def test_who_has_the_record_is_read_with_the_job(record: Record) -> None:
    record.put(**OTHER)
    record.put_job()
    answer = record_io.read_job(kube.Api(ONCE), RUN, ReadJob(0.0))
    assert (answer.record, answer.job.kind) == (OTHER, JobKind.FOUND)


@pytest.mark.parametrize("code", [403, 404, 503])
def test_job_is_read_although_the_holder_of_the_record_is_unknown(
    record: Record, api_server: FakeApi, code: int
) -> None:
    record.put_job()
    api_server.fail("GET", PATH, faults.status(code))
    answer = record_io.read_job(kube.Api(ONCE), RUN, ReadJob(0.0))
    assert (answer.record, answer.job.kind) == (None, JobKind.FOUND)


@pytest.mark.parametrize(
    ("pods", "if_forbidden", "if_deleted"),
    [
        pytest.param("none", UNREADABLE, DELETED, id="no other master"),
        # After an upgrade, the master's Role names the new Job only.
        pytest.param("next master", REPLACED, REPLACED, id="another master"),
        # Without its RoleBinding, a master sees neither the Job nor whose the workers are.
        pytest.param("forbidden", UNREADABLE, REPLACED, id="pods are not seen"),
    ],
)
@pytest.mark.parametrize("code", [403, 404])
def test_a_job_that_is_not_seen_is_over_or_replaced_as_the_pods_tell(
    api_server: FakeApi, code: int, pods: str, if_forbidden: Any, if_deleted: Any
) -> None:
    api_server.fail("GET", "batch/jobs", faults.status(code))
    if pods == "next master":
        put_next_master(api_server)
    elif pods == "forbidden":
        api_server.fail("GET", "core/pods", faults.status(403))
    assert read_job() == (if_forbidden if code == 403 else if_deleted)


@pytest.mark.parametrize("uid", ["uid-1", "uid-2"])
def test_another_job_of_the_name_is_not_this_masters(api_server: FakeApi, uid: str) -> None:
    """An uninstall and an installation may have come between, which have other workers."""
    api_server.put("batch/jobs", {"metadata": {"name": JOB, "uid": uid}, "spec": {}})
    assert (read_job() == REPLACED) is (uid == "uid-2")


@pytest.mark.parametrize(
    "second", [[], [faults.status(403)], [faults.status(503)]], ids=["200", "403", "503"]
)
def test_a_job_that_was_not_found_once_is_not_taken_for_deleted(
    api_server: FakeApi, second: list[faults.Failure]
) -> None:
    api_server.put("batch/jobs", {"metadata": {"name": JOB}, "spec": {}})
    for failure in [faults.status(404), *second]:
        api_server.fail("GET", "batch/jobs", failure)
    assert read_job() == UNREADABLE


@pytest.mark.parametrize("jobs", [[], [GOING]], ids=["is gone", "is going"])
@pytest.mark.parametrize(
    ("uid", "changes", "is_replaced"),
    [
        ("uid-2", {}, True),
        ("uid-1", {}, False),
        ("", {}, False),
        ("uid-2", {"component": "worker"}, False),
        ("uid-2", {"phase": "Succeeded"}, False),
        ("uid-2", {"deletionTimestamp": DELETED_AT}, False),
    ],
    ids=["another", "own", "helm test", "worker", "has ended", "is ending"],
)
def test_a_job_is_not_withdrawn_where_another_jobs_master_has_its_workers(
    api_server: FakeApi, jobs: list[Any], uid: str, changes: dict[str, str], is_replaced: bool
) -> None:
    """An administrator's Role may allow the master to see that an upgrade has removed its Job."""
    labels = {
        "app.kubernetes.io/instance": "hvd",
        "app.kubernetes.io/component": changes.get("component", "master"),
        **({"batch.kubernetes.io/controller-uid": uid} if uid else {}),
    }
    metadata = {**changes, "name": "next", "labels": labels}
    pod = {"metadata": metadata, "status": {"phase": changes.get("phase", "Pending")}}
    api_server.put("core/pods", pod)
    for job in jobs:
        api_server.put("batch/jobs", job)
    job = read_job()
    assert (job == REPLACED) == is_replaced
    assert job.is_withdrawn != is_replaced


@pytest.mark.parametrize("failure", [faults.status(503), faults.silence], ids=["503", "silence"])
def test_a_job_that_cannot_be_read_may_retry_a_failure(
    api_server: FakeApi, failure: faults.Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that does not answer keeps the next attempt waiting no longer than a refusal."""
    api_server.fail("GET", "batch/jobs", failure, times=9)
    assert read_job(0.05) == UNREADABLE
    assert " Job: " in capsys.readouterr().out
