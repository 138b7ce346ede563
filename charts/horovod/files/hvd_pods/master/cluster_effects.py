"""Carries out the effects on pods, StatefulSets and the Job by calls to the API server."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.cluster.statefulsets import (
    creation_failure,
    fit_to_run,
    is_gone,
    scale_to_zero,
    set_number,
)
from hvd_pods.master import work_queues
from hvd_pods.master.effect_registry import carries_out
from hvd_pods.master.record_io import read_job, read_lease
from hvd_pods.pod.reporting import log
from hvd_pods.rules.effects import (
    START_RETRY_SECONDS,
    DeletePods,
    ListPods,
    ReadJob,
    ReadLease,
    ScaleDown,
    ScaleUp,
)
from hvd_pods.rules.events import Event, PodsListed, WorkersScaled
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared.objects import shorten_object

# The number of pods that are deleted concurrently.
DELETE_THREADS = 8


class ClusterEffects:
    """Reads and changes the cluster for the master."""

    def __init__(self, api: Api, assignment: Assignment) -> None:
        self._api = api
        self._assignment = assignment
        self._run = assignment.run
        # Messages that are logged only once in an attempt.
        self._logged: set[str] = set()

    def log_again(self) -> None:
        """Allow messages that an earlier attempt logged to be logged again."""
        self._logged = set()

    def scale_to_initial(self) -> None:
        """Give each StatefulSet the number of workers that the run starts with."""
        if not self._api.is_stopped():
            fit_to_run(self._api, self._run, START_RETRY_SECONDS)

    @carries_out(ReadJob, work_queues.JOB)
    def read_job(self, effect: ReadJob) -> Event:
        """Read the Job, and the holder of the record."""
        return read_job(self._api, self._run, effect)

    @carries_out(ReadLease, work_queues.LEASE)
    def read_lease(self, effect: ReadLease) -> Event:
        """Read the session's lease."""
        return read_lease(self._api)

    @carries_out(ListPods, work_queues.PODS)
    def list_pods(self, effect: ListPods) -> Event:
        """List the pods, with the reasons why some were not created."""
        api = self._api
        run = self._run
        refusals = {}
        query = {"labelSelector": run.worker_selector}
        try:
            items, _ = api.list_all("core/pods", query, retry_seconds=0.0)
        except ApiError as problem:
            return PodsListed(effect.attempt, problem=str(problem))
        pods = {item["metadata"]["name"]: shorten_object(item) for item in items}
        for name in effect.missing:
            worker = self._assignment.workers[name]
            # The controller stops at the first refused pod: its reason stands for all pods.
            if name not in pods and worker.stateful_set not in refusals:
                refusals[worker.stateful_set] = creation_failure(api, worker.stateful_set)
        gone = tuple(name for name in refusals if is_gone(api, name))
        return PodsListed(effect.attempt, pods, refusals, gone)

    @carries_out(DeletePods, work_queues.PODS)
    def delete_pods(self, effect: DeletePods) -> None:
        """Delete pods that still have the given UIDs."""

        def delete(name: str, uid: str) -> None:
            try:
                self._api.delete(
                    f"core/pods/{name}",
                    uid,
                    retry_seconds=0.0,
                    grace_period_seconds=effect.grace_period_seconds,
                )
            except ApiError as problem:
                # Another client deleted the pod, and there may be a new one.
                if problem.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    self._log_once(f"cannot replace {name}: {problem}")

        if not self._api.is_stopped():
            with ThreadPoolExecutor(DELETE_THREADS) as pool:
                list(pool.map(delete, effect.uids.keys(), effect.uids.values()))

    @carries_out(ScaleUp, work_queues.PODS)
    def scale_up(self, effect: ScaleUp) -> None:
        """Scale a StatefulSet that has too few workers."""
        name = effect.stateful_set
        number = effect.number
        try:
            if not self._api.is_stopped():
                accepted = range(effect.below, sys.maxsize)
                set_number(self._api, name, number, 0.0, accepted)
        except ApiError as problem:
            self._log_once(f"cannot scale {name} to {number}: {problem}")

    @carries_out(ScaleDown, work_queues.PODS)
    def scale_down(self, effect: ScaleDown) -> Event:
        """Scale the workers to zero."""
        scale_to_zero(self._api, self._run.stateful_sets)
        return WorkersScaled()

    def _log_once(self, text: str) -> None:
        """Log a text once in an attempt: deleting and scaling are retried every few seconds."""
        if text not in self._logged:
            self._logged.add(text)
            log(text)
