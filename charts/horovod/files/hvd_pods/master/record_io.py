"""The calls for the record of a release and for the Job, which rules/record_lock.py decides."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any, Mapping

from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.master import work_queues
from hvd_pods.master.effect_registry import carries_out
from hvd_pods.pod.reporting import log
from hvd_pods.rules.effects import (
    RESTART_RETRY_SECONDS,
    START_RETRY_SECONDS,
    ReadJob,
    ReadRecord,
    ReleaseRecord,
    WriteRecord,
)
from hvd_pods.rules.events import (
    Event,
    JobRead,
    LeaseRead,
    RecordChanged,
    RecordFailed,
    RecordPurpose,
    RecordRead,
    RecordReleased,
    RecordWritten,
)
from hvd_pods.rules.job_evidence import JobEvidence
from hvd_pods.rules.job_state import REPLACED, UNREADABLE, JobReading, read_found_job
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared import contract
from hvd_pods.shared.objects import format_precise_time, shorten_object
from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.run import Run
from hvd_pods.shared.untrusted import printable

# Seconds for which the release of the record is retried.
RELEASE_RETRY_SECONDS = 10.0
# Seconds until the second read of a Job that was not found.
SECOND_READ_DELAY_SECONDS = 1.0


class RecordClient:
    """Reads and writes the record; a write is refused if another client has changed it.

    A deleted record is created again as long as this master's Job exists.
    """

    def __init__(self, api: Api, assignment: Assignment) -> None:
        self._api = api
        self._name = assignment.run.record
        self._job = assignment.uid
        self._labels = dict(
            part.split("=", 1) for part in assignment.run.master_selector.split(",")
        )
        # The pod of `helm test` has no Job.
        holder = {
            RecordKey.HOLDER: assignment.holder,
            RecordKey.HOLDER_JOB: assignment.job or "helm test",
        }
        self._own = {**holder, RecordKey.HOLDER_UID: assignment.uid}
        # The version and data of the record as last read, and how many writes found it changed.
        self._version = ""
        self._changes = 0
        # The UID of the record, and whether another record has its name: the release was
        # uninstalled, and another release has its name.
        self._uid: str | None = None
        self._is_other = False
        self._data: Mapping[str, str] = {}

    @carries_out(ReadRecord, work_queues.RECORD)
    def read(self, effect: ReadRecord) -> Event:
        """Read the record; create it if it does not exist."""
        try:
            return RecordRead(self._read_or_make())
        except ApiError as problem:
            return _failure_event(RecordPurpose.READ, problem)

    @carries_out(WriteRecord, work_queues.RECORD)
    def write(self, effect: WriteRecord) -> Event:
        """Change the record, and renew the lock if this master has it."""
        try:
            return self._patch(effect.purpose, effect.data, effect)
        except ApiError as problem:
            return _failure_event(effect.purpose, problem)

    @carries_out(ReleaseRecord, work_queues.RECORD)
    def release(self, effect: ReleaseRecord) -> Event:
        """Release the record, so that another master need not wait."""
        news = {**effect.data, RecordKey.HOLDER: ""}
        last_write = WriteRecord(
            RecordPurpose.RELEASE,
            news,
            effect.fence,
            is_holder=True,
            retry_seconds=RELEASE_RETRY_SECONDS,
        )
        try:
            # A person may change the record meanwhile. Leave another master's record as it is.
            while (
                self._data.get(RecordKey.HOLDER) == self._own[RecordKey.HOLDER]
                and not self._is_other
            ):
                self._patch(RecordPurpose.RELEASE, news, last_write)
        except ApiError as problem:
            log(f"cannot release the record: {problem}")
        return RecordReleased()

    def _read_or_make(self) -> Mapping[str, str]:
        """Read the record; create it if it does not exist, unless the release is gone, too."""
        try:
            return self._read()
        except ApiError as problem:
            if problem.status != HTTPStatus.NOT_FOUND or not self._is_job_left():
                raise
        log(f"the record {self._name} was deleted: making it again")
        metadata = {"name": self._name, "namespace": self._api.namespace, "labels": self._labels}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        # Without data: another master that creates it at the same time loses no data.
        record = self._api.apply(f"core/configmaps/{self._name}", body)
        self._uid = record["metadata"].get("uid")
        return self._read()

    def _read(self) -> Mapping[str, str]:
        item = self._api.get(f"core/configmaps/{self._name}")
        uid = item["metadata"].get("uid")
        if self._uid not in (None, uid):
            self._is_other = not self._is_job_left()
        self._uid = uid
        self._version = item["metadata"].get("resourceVersion", "")
        self._data = item.get("data") or {}
        return self._data

    def _is_job_left(self) -> bool:
        """Return whether this master's Job exists or cannot be read.

        A test's master has no Job.
        """
        if not self._job:
            return False
        name = os.environ[contract.JOB]
        try:
            job = self._api.get(f"batch/jobs/{name}", retry_seconds=RESTART_RETRY_SECONDS)
        except ApiError as problem:
            return problem.status != HTTPStatus.NOT_FOUND
        metadata = job["metadata"]
        is_own = metadata.get("uid", self._job) == self._job
        return is_own and "deletionTimestamp" not in metadata

    def _patch(self, purpose: RecordPurpose, data: Mapping[str, str], effect: WriteRecord) -> Event:
        # Exceptions of ranks may contain any character.
        data = {name: printable(text) for name, text in data.items()}
        body: dict[str, Any] = {"data": data}
        if self._is_other or (effect.changes != self._changes and purpose != RecordPurpose.RELEASE):
            # This write would take the record back from another master.
            return RecordChanged(purpose, self._data, self._changes, self._is_other)
        if effect.is_holder:
            now = format_precise_time(datetime.now(timezone.utc))
            lock = {**self._own, RecordKey.FENCE: str(effect.fence), RecordKey.RENEWED: now}
            # With the version, the API server refuses this write if the record has changed.
            metadata = {"resourceVersion": self._version}
            body = {"data": {**lock, **data}, "metadata": metadata}
        try:
            item = self._api.merge_patch(
                f"core/configmaps/{self._name}", body, effect.retry_seconds
            )
        except ApiError as problem:
            if problem.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise
            self._changes += 1
            changed = self._read_or_make()
            return RecordChanged(purpose, changed, self._changes, self._is_other)
        if effect.is_holder:
            self._version = item["metadata"].get("resourceVersion", "")
            self._data = item.get("data") or {}
        return RecordWritten(purpose)


def _failure_event(purpose: RecordPurpose, problem: ApiError) -> Event:
    return RecordFailed(purpose, problem.status, str(problem), problem.is_temporary)


def read_job(
    api: Api,
    run: Run,
    effect: ReadJob,
    second_read_delay_seconds: float = SECOND_READ_DELAY_SECONDS,
) -> JobRead:
    """Read the Job and the holder of the record: only the holder acts on the state of the Job.

    A Job that is not found is read a second time after `second_read_delay_seconds`.
    """
    began = time.monotonic()
    job = _read_job(api, run, effect, second_read_delay_seconds)
    if effect.is_for_orphans:
        return JobRead(job, is_for_orphans=True)
    retry_seconds = effect.retry_seconds
    seconds_left = (
        None if retry_seconds is None else max(0.0, retry_seconds - (time.monotonic() - began))
    )
    try:
        item = api.get(
            f"core/configmaps/{run.record}", retry_seconds=seconds_left, timeout=seconds_left
        )
    except ApiError as problem:
        log(f"cannot read which master controls the workers: {problem}")
        return JobRead(job)
    return JobRead(job, record=item.get("data") or {})


def _read_job(api: Api, run: Run, effect: ReadJob, second_read_delay_seconds: float) -> JobReading:
    """Read the Job, and what else its state depends on (rules/job_evidence.py)."""
    name = os.environ[contract.JOB]
    evidence = JobEvidence(os.environ[contract.JOB_UID])
    retry_seconds = effect.retry_seconds
    try:
        job = api.get(f"batch/jobs/{name}", retry_seconds=retry_seconds, timeout=retry_seconds)
        evidence = replace(evidence, job=job)
    except ApiError as problem:
        log(f"cannot read the Job: {problem}")
        evidence = replace(evidence, status=problem.status)
    if evidence.depends_on_masters:
        evidence = replace(evidence, is_replaced=_is_replaced(api, run))
    if evidence.depends_on_second_read:
        time.sleep(second_read_delay_seconds)
        evidence = replace(evidence, is_gone=_is_gone(api, name, effect))
    return evidence.conclude()


def read_lease(api: Api) -> LeaseRead:
    """Read the session's lease from this master's Job, not from another Job of its name."""
    try:
        job = api.get(f"batch/jobs/{os.environ[contract.JOB]}", retry_seconds=0.0)
    except ApiError:
        return LeaseRead(UNREADABLE)
    uid = os.environ[contract.JOB_UID]
    is_own = job["metadata"].get("uid", uid) == uid
    return LeaseRead(read_found_job(shorten_object(job)) if is_own else REPLACED)


def _is_gone(api: Api, name: str, effect: ReadJob) -> bool:
    """Return whether a second read does not find the Job either."""
    try:
        api.get(
            f"batch/jobs/{name}", retry_seconds=effect.retry_seconds, timeout=effect.retry_seconds
        )
    except ApiError as problem:
        return problem.status == HTTPStatus.NOT_FOUND
    return False


def _is_replaced(api: Api, run: Run) -> bool | None:
    """Return whether another Job's master has the workers; None if the pods cannot be read."""
    query = {"labelSelector": run.master_selector}
    try:
        pods, _ = api.list_all("core/pods", query, retry_seconds=START_RETRY_SECONDS)
    except ApiError as problem:
        log(f"cannot read whether another run has the workers: {problem}")
        return None
    left = [
        pod["metadata"].get("labels", {}).get("batch.kubernetes.io/controller-uid")
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
    # The pod of `helm test` has no Job.
    return any(uid not in (None, os.environ[contract.JOB_UID]) for uid in left)


def has_ended(api: Api, name: str, retry_seconds: float | None = None) -> bool:
    """Return whether a Job has no pod and creates none, or is gone. Raises ApiError."""
    try:
        return read_found_job(api.get(f"batch/jobs/{name}", retry_seconds=retry_seconds)).is_over
    except ApiError as problem:
        if problem.status == HTTPStatus.NOT_FOUND:
            return True
        raise
