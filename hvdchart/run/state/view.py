"""The newest run of a release for all displays, from one reading of the cluster. Pure."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.untrusted import MAX_COUNTED, parse_count
from hvdchart.errors import ClusterError
from hvdchart.run.state.judge import is_stuck, judge_run
from hvdchart.run.state.newest import NewestRun
from hvdchart.run.state.phases import Phase, find_phase
from hvdchart.run.state.progress import Progress, read_progress
from hvdchart.run.state.ranks import failed_rank, is_tagged, pods_of_ranks, run_of
from hvdchart.run.state.release import Object, condition_of
from hvdchart.run.state.run_problems import waits_for
from hvdchart.run.state.stalls import read_stall
from hvdchart.run.state.status import PodStatus, Status

_NOT_A_NUMBER = "the loss is NaN; `launch.failOnNaN=true` ends such a run"


class RunView(NewestRun):
    """The newest run of a release: its parts, and its status, phase, ranks and progress.

    All displays use this view, and compute no state of their own. A later reading gives another
    view.
    """

    @cached_property
    def progress(self) -> Progress | None:
        """Return the script's last report; None before the first one."""
        return read_progress(self.record)

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Return the pod of each rank; none without a Job, or with one of another chart version."""
        if self.job is not None:
            with suppress(ClusterError):
                return tuple(pods_of_ranks(run_of(self.job), self.record))
        return ()

    @cached_property
    def phase(self) -> Phase:
        """Return how far the run has come, by its master's events or by its pods.

        A release without a Job is queued.
        """
        return find_phase(self, self.status)

    @cached_property
    def status(self) -> Status:
        """Its state, with the reason and what to do."""
        state, reason, remedy = judge_run(self)
        metadata = self.job["metadata"] if self.job else {}
        workers = self.workers
        progress = self.progress
        attempt, attempts = self._attempts()
        return Status(
            name=self.release.name,
            state=state,
            reason=self.rephrase(reason),
            remedy=self.rephrase(remedy),
            job=str(metadata.get("name", "")),
            attempt=attempt,
            attempts=attempts,
            workers_ready=workers.ready,
            workers_wanted=workers.wanted,
            spares_ready=workers.spares_ready,
            spares_wanted=workers.spares_wanted,
            pods=tuple(map(self._pod_status, sorted(self.pods, key=_name_key))),
            progress=progress,
            stall=read_stall(self.record) if state == "running" else None,
            failed_rank=self._failed_rank(reason) if state == "failed" else None,
            started=str(metadata.get("creationTimestamp") or ""),
            ended=self._find_end() if state in ("finished", "failed") else "",
            warning=self.rephrase(_NOT_A_NUMBER) if progress and progress.loss == "nan" else "",
            is_stuck=state == "waiting" and is_stuck(self),
            is_of_script=self.is_of_script,
        )

    def _failed_rank(self, reason: str) -> int | None:
        """Return the rank that ended the run, if the log identifies its lines."""
        rank = failed_rank(reason)
        if self.job is not None and rank is not None and rank < len(self.ranks):
            is_known = is_tagged(run_of(self.job), self.release.stateful_sets)
            return rank if is_known else None
        return None

    def _attempts(self) -> tuple[int, int]:
        """Return the number of the current attempt, and the maximum; 0 without a Job."""
        if self.job is None:
            return 0, 0
        # Six is Kubernetes' own default.
        attempts = int(self.job["spec"].get("backoffLimit", 6)) + 1
        # The record counts the master's attempts; the Job counts only lost masters.
        lost = int(self.job.get("status", {}).get("failed", 0))
        recorded = parse_count(self.record.get(RecordKey.ATTEMPTS, ""), MAX_COUNTED)
        attempt = recorded or min(lost + 1, attempts)
        return attempt, attempts

    def _find_end(self) -> str:
        """Return the end time: from the Job, or else from the record."""
        job = self.job or {}
        condition = condition_of(job, "Complete") or condition_of(job, "Failed")
        if condition:
            ended = job["status"].get("completionTime") or condition.get("lastTransitionTime")
            return str(ended or self.record.get(RecordKey.TIME, ""))
        return self.record.get(RecordKey.TIME, "")

    def _pod_status(self, pod: Object) -> PodStatus:
        status = pod.get("status", {})
        problem = self.problem(pod)
        containers = status.get("containerStatuses") or []
        restarts = sum(int(container.get("restartCount", 0)) for container in containers)
        deleting = "deletionTimestamp" in pod["metadata"]
        state = "Terminating" if deleting else waits_for(pod) or str(status.get("phase", "Unknown"))
        node = str(pod.get("spec", {}).get("nodeName") or "")
        return PodStatus(
            pod["metadata"]["name"], state, node, restarts, problem.reason if problem else ""
        )


def _name_key(pod: Object) -> tuple[str, int, str]:
    """Sort key: worker-2 comes before worker-10."""
    name = str(pod["metadata"]["name"])
    prefix, _, ordinal = name.rpartition("-")
    return (prefix, int(ordinal), "") if ordinal.isdecimal() else (name, 0, name)
