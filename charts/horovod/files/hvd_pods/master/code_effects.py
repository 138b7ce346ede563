"""Carries out the effects that send the user's code to workers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Callable

from hvd_pods.cluster.kube import Api
from hvd_pods.cluster.staged import add_nodes
from hvd_pods.master import remote, work_queues
from hvd_pods.master.effect_registry import carries_out
from hvd_pods.master.user_code import UserCode
from hvd_pods.master.worker_access import WorkerAccess
from hvd_pods.rules.effects import CountFinished, Deliver, PrepareNewcomers
from hvd_pods.rules.events import Delivered, Event, FinishedCounted, NewcomersReady
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.paths import CODE, CODE_SOURCE


class CodeEffects:
    """Prepares workers for ranks: those of an attempt, and those that come while ranks train.

    `end_of_watch` returns a function that says whether the workers' present watch has ended.
    """

    def __init__(
        self,
        assignment: Assignment,
        api: Api | None,
        access: WorkerAccess,
        end_of_watch: Callable[[], Callable[[], bool]],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._assignment = assignment
        self._run = assignment.run
        self._api = api
        self._access = access
        self._end_of_watch = end_of_watch
        self._is_stopped = is_stopped
        run = self._run
        install_timeout_seconds = run.workers_timeout_seconds if run.installs_requirements else 0.0
        # All attempts share it: a worker need not get it twice.
        self.code = UserCode(
            run.code, Path(CODE_SOURCE), Path(CODE), install_timeout_seconds, is_stopped
        )

    @carries_out(Deliver, work_queues.DELIVER)
    def deliver(self, effect: Deliver) -> Event:
        """Send the user's code to workers."""
        pods = {self._assignment.workers[name]: pod for name, pod in effect.pods.items()}
        # Include workers without ranks.
        answering = self._access.workers_named([*effect.addresses])
        if effect.saves_other_states:
            remote.save_kept(self._access.find(), answering, self._is_stopped)
        problem = None
        try:
            self.code.deliver(self._access.find(), pods)
        except RunError as error:
            problem = error
        add_nodes(self._run, self._api, pods)
        reached = [worker.name for worker, pod in pods.items() if self.code.is_on(worker, pod)]
        return Delivered(effect.attempt, reached, problem)

    @carries_out(CountFinished, work_queues.DELIVER)
    def count_finished(self, effect: CountFinished) -> Event:
        """Ask all workers how many ranks of an orphaned launch have finished."""
        workers = self._access.workers_named([*effect.addresses])
        access = self._access.find()
        number = remote.count_finished(access, workers, effect.fence, self._is_stopped)
        return FinishedCounted(effect.attempt, number)

    @carries_out(PrepareNewcomers, work_queues.GROW)
    def prepare_newcomers(self, effect: PrepareNewcomers) -> Event:
        """Make new workers import the modules that the script imports."""
        workers = self._access.workers_named(effect.workers)
        pods = {self._assignment.workers[name]: pod for name, pod in effect.pods.items()}
        has_watch_ended = self._end_of_watch()
        # The next attempt sends the code again; the packages are then installed.
        code = copy.copy(self.code)
        code.forget()

        def is_over() -> bool:
            return self._is_stopped() or has_watch_ended()

        try:
            if not remote.are_states_kept(self._access.find(), workers):
                return NewcomersReady(effect.attempt, [*effect.pods], is_state_kept=False)
            code.deliver(self._access.find(), pods)
            ready = remote.wait_until_warm(self._access.find(), [*pods], is_over)
        except RunError as problem:
            return NewcomersReady(effect.attempt, [], is_state_kept=True, problem=problem)
        return NewcomersReady(effect.attempt, [worker.name for worker in ready], is_state_kept=True)
