"""Select the parts of a release that belong to its newest run, from one reading. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hvd_pods.shared.contract import COMMAND
from hvd_pods.shared.record import RecordKey
from hvdchart.run.state.ranks import count_used
from hvdchart.run.state.release import Object, Release, component_of, is_event_of
from hvdchart.run.state.run_problems import Problem, last_failure, problem_of
from hvdchart.run.state.workers import Workers, count_workers
from hvdchart.script.options import RUN_COMMAND
from hvdchart.script.wording import name_options

_OF_TRAINING = ("master", "worker")


@dataclass(frozen=True)
class NewestRun:
    """The newest run of a release, from one reading of the cluster.

    Each part is computed once, on first use; the object does not change.
    """

    release: Release

    @cached_property
    def job(self) -> Object | None:
        """The Job; None without one.

        An upgrade deletes the older Job, which may take a moment.
        """
        present = [job for job in self.release.jobs if "deletionTimestamp" not in job["metadata"]]
        return max(present, key=lambda job: str(job["metadata"]["creationTimestamp"]), default=None)

    @cached_property
    def record(self) -> Mapping[str, str]:
        """Return the master's record of this run; the record of an earlier run does not count.

        Without a Job, the run is that of the record.
        """
        record = self.release.record
        if self.job is None:
            return record
        metadata = self.job["metadata"]
        is_own = record.get(RecordKey.JOB) == metadata["name"]
        uids = {record.get(RecordKey.UID, ""), metadata.get("uid", "")} - {""}
        return record if is_own and len(uids) < 2 else {}

    @cached_property
    def pods(self) -> tuple[Object, ...]:
        """Return the pods of the release except the masters of other runs."""
        return tuple(pod for pod in self.release.pods if not self._is_of_other_run(pod))

    @cached_property
    def masters(self) -> tuple[Object, ...]:
        """Return the existing pods of the Job: one for each master."""
        return tuple(pod for pod in self.pods if component_of(pod) == "master")

    @cached_property
    def training_pods(self) -> tuple[Object, ...]:
        """Return the masters and the workers: no training waits for another pod of a release."""
        return tuple(pod for pod in self.pods if component_of(pod) in _OF_TRAINING)

    @cached_property
    def workers(self) -> Workers:
        """Return how many workers and spares are up, and are wanted."""
        return count_workers(self.release.stateful_sets, self.pods, count_used(self.record))

    @cached_property
    def last_failure(self) -> str:
        """Return the message of the last master that failed; empty if none failed."""
        return last_failure(self.masters)

    def events_of(self, item: Object) -> list[Object]:
        """Return the events about this object, oldest first."""
        events = self._events.get(item["metadata"]["name"], [])
        return [event for event in events if is_event_of(event, item)]

    @cached_property
    def _events(self) -> dict[str, list[Object]]:
        """Return the events by the name of their object: 200 pods may have thousands."""
        by_name: dict[str, list[Object]] = {}
        for event in self.release.events:
            name = str(event.get("involvedObject", {}).get("name", ""))
            by_name.setdefault(name, []).append(event)
        return by_name

    @cached_property
    def problems(self) -> Mapping[str, Problem]:
        """Return what keeps pods from doing their work, by the pods' names, in their order.

        Working pods, and pods that may be starting normally, are left out.
        """
        judged = ((pod, problem_of(pod, self.events_of(pod))) for pod in self.pods)
        return {str(pod["metadata"]["name"]): problem for pod, problem in judged if problem}

    def problem(self, pod: Object) -> Problem | None:
        """Return what keeps a pod from doing its work; None if there is no problem."""
        return self.problems.get(pod["metadata"]["name"])

    @cached_property
    def is_of_script(self) -> bool:
        """Whether the command `run` created it: its user has no spec, and no values."""
        if self.job is None:
            return False
        annotations = self.job["spec"]["template"].get("metadata", {}).get("annotations") or {}
        return bool(annotations.get(COMMAND) == RUN_COMMAND)

    @property
    def rephrase(self) -> Callable[[str], str]:
        """Reword a text with keys of a spec and values of the chart for the user of this run."""
        return name_options if self.is_of_script else str

    def _is_of_other_run(self, pod: Object) -> bool:
        """Return whether a pod is the master of another run than the Job's."""
        owner = (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name")
        return bool(self.job and owner is not None and owner != self.job["metadata"]["name"])
