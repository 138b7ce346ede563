"""Carries out the effects on workers: probes them, and runs programs there that are no ranks."""

from __future__ import annotations

from contextlib import suppress
from typing import Callable

from hvd_pods.cluster.addresses import DnsAddresses, SliceAddresses
from hvd_pods.cluster.kube import Api
from hvd_pods.master import remote, work_queues
from hvd_pods.master.effect_registry import carries_out
from hvd_pods.master.prober import Prober
from hvd_pods.master.work_queues import WorkQueues
from hvd_pods.master.worker_access import WorkerAccess
from hvd_pods.pod.reporting import log
from hvd_pods.rules.effects import (
    EndLeftovers,
    FreezeAddresses,
    LoseWorkersAfter,
    ShowStacks,
    StopWatching,
    WatchWorkers,
)
from hvd_pods.rules.events import Event, EventSink, StacksShown
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared.errors import RunError

# Timeout in seconds for a worker to end leftover processes.
LEFTOVERS_END_TIMEOUT_SECONDS = 60.0


class WorkerEffects:
    """Watches the workers for the master."""

    def __init__(
        self,
        assignment: Assignment,
        api: Api | None,
        access: WorkerAccess,
        put: EventSink,
        queues: WorkQueues,
    ) -> None:
        self._run = assignment.run
        self._api = api
        self._access = access
        self._put = put
        self._work_queues = queues
        self._prober: Prober | None = None

    def end_of_watch(self) -> Callable[[], bool]:
        """Return a function that says whether the workers' present watch has ended."""
        watched = self._prober
        return lambda: watched is None or watched.is_closed

    @carries_out(WatchWorkers)
    def watch_workers(self, effect: WatchWorkers) -> None:
        """Start to probe all workers."""
        run = self._run
        api = self._api
        source = SliceAddresses(api, run) if api else DnsAddresses(run.workers)
        self._prober = Prober(
            run.workers, run.agent_port, source, self._put, effect.attempt, run.lost_after_seconds
        )
        self._prober.start()
        self._work_queues.add(work_queues.PREPARE, self._look_for_keys)

    def _look_for_keys(self) -> None:
        # Leftovers of an earlier master are ended before the attempt is prepared. The preparation
        # reports why there are no keys.
        with suppress(RunError):
            self._access.take_keys()

    @carries_out(FreezeAddresses)
    def freeze_addresses(self, effect: FreezeAddresses) -> None:
        """Stop following the addresses of these workers."""
        if self._prober:
            self._prober.freeze(effect.workers)

    @carries_out(LoseWorkersAfter)
    def lose_workers_after(self, effect: LoseWorkersAfter) -> None:
        """Detect sooner that a worker is silent."""
        if self._prober and self._prober.attempt == effect.attempt:
            self._prober.lose_after(effect.seconds)

    @carries_out(StopWatching)
    def stop_watching(self, effect: StopWatching) -> None:
        """Stop probing the workers."""
        if self._prober:
            self._prober.close()

    @carries_out(ShowStacks, work_queues.STACKS)
    def show_stacks(self, effect: ShowStacks) -> Event:
        """Write the stacks of ranks to the log."""
        places = []
        for name, ranks in effect.ranks.items():
            [worker] = self._access.workers_named([name])
            places += remote.show_stacks(self._access.find(), worker, ranks)
        return StacksShown(effect.attempt, places)

    @carries_out(EndLeftovers, work_queues.LEFTOVERS)
    def end_leftovers(self, effect: EndLeftovers) -> None:
        """End processes that earlier attempts left on other workers."""
        watched = self._prober
        if watched is None or watched.is_closed or watched.attempt != effect.attempt:
            return
        # An agent connection with a higher fence number ends the processes of earlier ones: the
        # program itself need not do anything.
        workers = self._access.workers_named(effect.workers)
        program = ["shared/files.py"]
        try:
            access = self._access.find()
        except RunError as problem:
            log(f"cannot end what earlier attempts may have left: {problem}")
            return
        answers = remote.call(
            access,
            workers,
            program,
            seconds=LEFTOVERS_END_TIMEOUT_SECONDS,
            is_stopped=lambda: watched.is_closed,
        )
        for worker, (code, output) in answers.items():
            if code and not watched.is_closed:
                log(f"cannot end what earlier attempts may have left on {worker.name}: {output}")
