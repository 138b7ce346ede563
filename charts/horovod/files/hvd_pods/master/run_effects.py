"""Carries out the effects that `decide` returns. Slow effects run in work queues."""

from __future__ import annotations

import os
import threading
from functools import partial

from hvd_pods.cluster.job_events import JobEvents
from hvd_pods.cluster.kube import Api
from hvd_pods.master import work_queues
from hvd_pods.master.cluster_effects import ClusterEffects
from hvd_pods.master.code_effects import CodeEffects
from hvd_pods.master.effect_registry import carries_out, methods_of
from hvd_pods.master.launcher_effects import LauncherEffects
from hvd_pods.master.notice_server import NoticeServer
from hvd_pods.master.progress_follower import ProgressFollower
from hvd_pods.master.record_io import RecordClient
from hvd_pods.master.worker_access import WorkerAccess
from hvd_pods.master.worker_effects import WorkerEffects
from hvd_pods.pod.reporting import log, report_failure
from hvd_pods.rules.effects import (
    CreateJobEvent,
    Effect,
    EndLauncher,
    Exit,
    FollowProgress,
    Interrupt,
    Log,
    Prepare,
    ReleaseRanks,
    ReleaseRecord,
    ReportFailure,
    StopProgress,
    StopWatching,
    WorkerEffect,
)
from hvd_pods.rules.events import Event, EventSink, ProgressStopped
from hvd_pods.rules.run_state import Assignment, RunState
from hvd_pods.shared import contract


class EffectRunner:
    """Carries out all effects of the master. The last effect, an Exit, sets `exit`.

    Those on the launcher, the user's code, workers, the cluster and the record have objects of
    their own.
    """

    def __init__(
        self,
        assignment: Assignment,
        api: Api | None,
        job_events: JobEvents,
        put: EventSink,
        record: RecordClient | None = None,
        cluster: ClusterEffects | None = None,
    ) -> None:
        self._assignment = assignment
        self._run = assignment.run
        self._api = api
        self._put = put
        self._notices = NoticeServer(os.environ[contract.POD_IP], assignment.run, put)
        self._job_events = job_events
        self._work_queues = work_queues.WorkQueues(put)
        # This pod was asked to end.
        self._stopped = threading.Event()
        if api:
            api.is_stopped = self._stopped.is_set
        # Without access to the API, no effect needs these two.
        self._record = record or (RecordClient(api, assignment) if api else None)
        self._cluster = cluster or (ClusterEffects(api, assignment) if api else None)
        self._access = access = WorkerAccess(assignment, api)
        self._workers = WorkerEffects(assignment, api, access, put, self._work_queues)
        code = CodeEffects(
            assignment, api, access, self._workers.end_of_watch, self._stopped.is_set
        )
        self._launcher = LauncherEffects(assignment, api, access, put, code.code)
        self._progress: ProgressFollower | None = None
        self.exit: Exit | None = None
        carriers = (self, self._record, self._cluster, self._workers, code, self._launcher)
        self._methods = {
            effect: method for carrier in carriers for effect, method in methods_of(carrier).items()
        }

    def carry_out(self, effect: Effect) -> None:
        """Carry out an effect, at once or in a work queue."""
        if isinstance(effect, WorkerEffect):
            self._access.note_addresses(effect.addresses)
        method = self._methods[type(effect)]
        if method.work_queue:
            self._work_queues.add(method.work_queue, partial(method.call, effect))
        else:
            method.call(effect)

    def give_up(self, state: RunState) -> None:
        """End the prober and the launcher after a defect, and release the record at once."""
        self._workers.stop_watching(StopWatching())
        self._launcher.end_launcher(EndLauncher())
        lock = state.record_lock
        if self._record and lock.is_held and not lock.lost_to:
            self._record.release(ReleaseRecord(state.record_data(), lock.fence))

    @carries_out(Exit)
    def end_master(self, effect: Exit) -> None:
        """End the loop."""
        self.exit = effect

    @carries_out(Log)
    def log(self, effect: Log) -> None:
        """Print a line."""
        log(effect.message)

    @carries_out(CreateJobEvent)
    def create_job_event(self, effect: CreateJobEvent) -> None:
        """Queue a Kubernetes event."""
        event = effect.event
        self._job_events.put(event.reason, effect.message, event.is_warning)

    @carries_out(ReportFailure)
    def report_failure(self, effect: ReportFailure) -> None:
        """Write why the run failed to the log and the termination message."""
        report_failure(effect.problem)

    @carries_out(ReleaseRanks)
    def release_ranks(self, effect: ReleaseRanks) -> None:
        """Respond to ranks that wait to report their end."""
        self._notices.release(effect.connections)

    @carries_out(Interrupt)
    def interrupt(self, effect: Interrupt) -> None:
        """Make waiting calls give up soon."""
        self._stopped.set()

    @carries_out(Prepare)
    def prepare(self, effect: Prepare) -> None:
        """Set the attempt for notices and requests, and prepare its launcher."""
        self._notices.begin(effect.attempt, effect.fence)
        # The launcher inherits them.
        self._access.variables = {
            contract.RUN_ID: self._run.id,
            contract.ATTEMPT: str(effect.attempt),
            contract.FENCE: str(effect.fence),
            contract.NOTICES: self._notices.address,
        }
        if self._cluster:
            self._cluster.log_again()
        if self._cluster and effect.scales_workers:
            self._work_queues.add(work_queues.PODS, self._cluster.scale_to_initial)
        self._work_queues.add(work_queues.PREPARE, partial(self._launcher.set_up, effect))

    @carries_out(FollowProgress)
    def follow_progress(self, effect: FollowProgress) -> None:
        """Read the progress that ranks report."""
        workers = self._access.workers_named(effect.workers)
        self._progress = ProgressFollower(self._access.find, workers, self._put, effect.attempt)

    @carries_out(StopProgress, work_queues.JUDGE)
    def stop_progress(self, effect: StopProgress) -> Event:
        """Stop reading progress, after the last step if the effect waits for it."""
        progress = self._progress
        self._progress = None
        if progress:
            progress.close(wait_for_last_step=effect.wait_for_last_step)
        return ProgressStopped(effect.attempt)
