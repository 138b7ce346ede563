"""Carries out the effects that `decide` returns. Slow effects run in work queues."""

from __future__ import annotations

import copy
import os
import signal
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import Mapping, NamedTuple, Sequence

from hvd_pods.agent.keys import Keys
from hvd_pods.cluster.addresses import DnsAddresses, SliceAddresses
from hvd_pods.cluster.job_events import JobEvents
from hvd_pods.cluster.key_secrets import find_keys
from hvd_pods.cluster.kube import Api
from hvd_pods.cluster.objects import AGAIN_RETRY_SECONDS
from hvd_pods.cluster.staged import add_nodes
from hvd_pods.cluster.statefulsets import find_evictions
from hvd_pods.master import launcher_memory, remote, results, work_queues
from hvd_pods.master.agent_connection import AgentAddresses
from hvd_pods.master.cluster_effects import ClusterEffects
from hvd_pods.master.effect_registry import carries_out, methods_of
from hvd_pods.master.gateway import Gateway
from hvd_pods.master.launch import (
    build_command,
    build_environment,
    describe_rendezvous,
    select_mpi,
    write_ssh,
)
from hvd_pods.master.launcher_process import LauncherProcess
from hvd_pods.master.mpi import HOSTFILE, MpiImplementation, count_clients, format_hostfile
from hvd_pods.master.notice_server import NoticeServer
from hvd_pods.master.prober import Prober
from hvd_pods.master.progress_follower import ProgressFollower
from hvd_pods.master.record_io import RecordClient
from hvd_pods.master.user_code import UserCode
from hvd_pods.pod.reporting import log, report_failure
from hvd_pods.rules.effects import (
    AskRanks,
    CreateJobEvent,
    Deliver,
    Effect,
    EndLauncher,
    EndLeftovers,
    Exit,
    FindCause,
    FollowProgress,
    FreezeAddresses,
    Interrupt,
    Log,
    LoseWorkersAfter,
    Prepare,
    PrepareNewcomers,
    ReleaseRanks,
    ReleaseRecord,
    ReportFailure,
    ShowStacks,
    StartLauncher,
    StopProgress,
    StopWatching,
    StoreResults,
    WatchWorkers,
    WorkerEffect,
)
from hvd_pods.rules.events import (
    CauseFound,
    Delivered,
    Event,
    EventSink,
    LauncherNotStarted,
    NewcomersReady,
    Prepared,
    ProgressStopped,
    RanksAsked,
    ResultsStored,
    StacksShown,
)
from hvd_pods.rules.state import Assignment, RunState
from hvd_pods.shared import contract
from hvd_pods.shared.contract import ATTEMPT, FENCE, NOTICES, RENDEZVOUS, RUN_ID
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.run import Code, Worker

# Timeout in seconds for a worker to end leftover processes.
LEFTOVERS_WITHIN = 60.0


class LauncherSetup(NamedTuple):
    """The setup of an attempt's launcher, which a work queue prepares.

    `mpi` is None if the chart starts the ranks.
    """

    mpi: MpiImplementation | None
    variables: Mapping[str, str]


class EffectRunner:
    """Carries out all effects of the master. The last effect, an Exit, sets `exit`."""

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
        # Without access to the API, no effect needs these two.
        self._record = record or (RecordClient(api, assignment) if api else None)
        self._cluster = cluster or (ClusterEffects(api, assignment) if api else None)
        # All attempts share these. The first attempt that needs them prepares them. Otherwise they
        # would slow down each restart: by a request to the API server, and a call of mpirun.
        self._code = UserCode(Code())
        self._launcher_setup: LauncherSetup | None = None
        self._keys: Future[Keys] = Future()
        self._agents = AgentAddresses(self._run.agent_port, {})
        self._gateway = Gateway(self._find_access, put)
        # The variables of the present attempt. Threads read them: they are replaced, never changed.
        self._attempt_variables: Mapping[str, str] = {}
        self._prober: Prober | None = None
        self._launcher: LauncherProcess | None = None
        self._progress: ProgressFollower | None = None
        self.exit: Exit | None = None
        if api:
            api.is_stopped = self._stopped.is_set
        self._methods = {
            **methods_of(self),
            **methods_of(self._record),
            **methods_of(self._cluster),
        }

    def carry_out(self, effect: Effect) -> None:
        """Carry out an effect, at once or in a work queue."""
        if isinstance(effect, WorkerEffect):
            self._note_addresses(effect.addresses)
        method = self._methods[type(effect)]
        if method.work_queue:
            self._work_queues.add(method.work_queue, partial(method.call, effect))
        else:
            method.call(effect)

    def give_up(self, state: RunState) -> None:
        """End the prober and the launcher after a defect, and release the record at once."""
        self.stop_watching(StopWatching())
        self.end_launcher(EndLauncher())
        lock = state.record_lock
        if self._record and lock.is_held and not lock.lost_to:
            self._record.release(ReleaseRecord(state.record_data(), lock.fence))

    def _workers_named(self, names: Sequence[str]) -> list[Worker]:
        return [self._assignment.workers[name] for name in names]

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

    def _take_keys(self) -> None:
        """Find the master's keys, or make them. Raises RunError."""
        if not self._keys.done():
            folder = find_keys(self._api, self._run)
            keys = Keys(str(folder), self._run.worker_name)
            keys.client()
            self._keys.set_result(keys)

    def _find_access(self) -> remote.AgentAccess:
        """Return how workers are reached now. Raises RunError if the keys are not found in time."""
        try:
            keys = self._keys.result(LEFTOVERS_WITHIN)
        except FutureTimeoutError:
            raise RunError("the master has no keys yet") from None
        return remote.AgentAccess(keys, self._agents, self._attempt_variables)

    def _note_addresses(self, addresses: Mapping[str, str]) -> None:
        """Store the workers' addresses under each of their names.

        Only the loop's thread does this: it replaces the object that other threads read.
        """
        workers = {self._assignment.workers[name]: address for name, address in addresses.items()}
        found = {name: a for worker, a in workers.items() for name in (worker.name, worker.address)}
        # Keep known addresses: an effect may name workers other than those of the launch.
        self._agents = self._agents._replace(addresses={**self._agents.addresses, **found})

    @carries_out(Prepare)
    def prepare(self, effect: Prepare) -> None:
        """Set the attempt for notices and requests, and prepare its launcher."""
        self._notices.begin(effect.attempt, effect.fence)
        # Each request has them (worker/fence.py), and the launcher inherits them.
        self._attempt_variables = {
            RUN_ID: self._run.id,
            ATTEMPT: str(effect.attempt),
            FENCE: str(effect.fence),
            NOTICES: self._notices.address,
        }
        if self._cluster:
            self._cluster.log_again()
        if self._cluster and effect.scales_workers:
            self._work_queues.add(work_queues.PODS, self._cluster.scale_to_initial)
        self._work_queues.add(work_queues.PREPARE, partial(self._set_up_launcher, effect))

    @carries_out(WatchWorkers)
    def watch_workers(self, effect: WatchWorkers) -> None:
        """Start to probe all workers."""
        run = self._run
        api = self._api
        source = SliceAddresses(api, run) if api else DnsAddresses(run.workers)
        to_ask = (run.workers, run.agent_port, source)
        self._prober = Prober(*to_ask, self._put, effect.attempt, run.lost_after_seconds)
        self._prober.start()
        self._work_queues.add(work_queues.PREPARE, self._look_for_keys)

    def _look_for_keys(self) -> None:
        # Leftovers of an earlier master are ended before the attempt is prepared. The preparation
        # reports why there are no keys.
        with suppress(RunError):
            self._take_keys()

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

    @carries_out(EndLauncher)
    def end_launcher(self, effect: EndLauncher) -> None:
        """Send the launcher a signal."""
        if self._launcher:
            self._launcher.send(signal.SIGKILL if effect.kills else signal.SIGTERM)

    @carries_out(StopWatching)
    def stop_watching(self, effect: StopWatching) -> None:
        """Stop probing the workers."""
        if self._prober:
            self._prober.close()

    def _set_up_launcher(self, effect: Prepare) -> Event:
        run = self._run
        before = self._launcher_setup
        try:
            if before is None:
                self._take_keys()
                write_ssh(sys.executable)
                self._gateway.start()
                within = run.workers_timeout_seconds if run.installs_requirements else 0.0
                self._code = UserCode(run.code, within, self._stopped.is_set)
                self._code.unpack()
            inherited = build_environment(run, {**os.environ, **self._attempt_variables})
            variables = self._code.prepare_launcher(run.mode, inherited)
            mpi = before.mpi if before else select_mpi(run, variables)
            # The first attempt that gets here sets it, once.
            self._launcher_setup = LauncherSetup(mpi, variables)
            launcher_memory.prepare(count_clients(run), len(run.workers))
            self._code.forget()
            # Detect a command that cannot be built before there are workers.
            build_command(run, mpi)
        except RunError as problem:
            return Prepared(effect.attempt, problem)
        return Prepared(effect.attempt)

    @carries_out(Deliver, work_queues.DELIVER)
    def deliver(self, effect: Deliver) -> Event:
        """Send the user's code to workers."""
        pods = {self._assignment.workers[name]: pod for name, pod in effect.pods.items()}
        # Include workers without ranks.
        answering = self._workers_named([*effect.addresses])
        if effect.orphan_fence and self._have_finished(effect, answering):
            return Delivered(effect.attempt, [], is_finished=True)
        if effect.saves_other_states:
            remote.save_kept(self._find_access(), answering, self._stopped.is_set)
        problem = None
        try:
            self._code.deliver(self._find_access(), pods)
        except RunError as error:
            problem = error
        add_nodes(self._run, self._api, pods)
        reached = [worker.name for worker, pod in pods.items() if self._code.is_on(worker, pod)]
        return Delivered(effect.attempt, reached, problem)

    @carries_out(PrepareNewcomers, work_queues.GROW)
    def prepare_newcomers(self, effect: PrepareNewcomers) -> Event:
        """Make new workers import the modules that the script imports."""
        workers = self._workers_named(effect.workers)
        pods = {self._assignment.workers[name]: pod for name, pod in effect.pods.items()}
        watched = self._prober
        # The next attempt sends the code again; the packages are then installed.
        code = copy.copy(self._code)
        code.forget()

        def is_over() -> bool:
            return self._stopped.is_set() or watched is None or watched.is_closed

        try:
            if not remote.are_states_kept(self._find_access(), workers):
                return NewcomersReady(effect.attempt, [*effect.pods], is_state_kept=False)
            code.deliver(self._find_access(), pods)
            ready = remote.wait_until_warm(self._find_access(), [*pods], is_over)
        except RunError as problem:
            return NewcomersReady(effect.attempt, [], is_state_kept=True, problem=problem)
        return NewcomersReady(effect.attempt, [worker.name for worker in ready], is_state_kept=True)

    def _have_finished(self, effect: Deliver, workers: Sequence[Worker]) -> bool:
        number = remote.count_finished(
            self._find_access(), workers, effect.orphan_fence, self._stopped.is_set
        )
        return number == effect.orphan_ranks

    @carries_out(StartLauncher)
    def start_launcher(self, effect: StartLauncher) -> None:
        """Start the launcher on the workers of an attempt."""
        addresses = {
            self._assignment.workers[n]: address for n, address in effect.addresses.items()
        }
        if self._launcher_setup is None:
            raise RuntimeError("no launcher was prepared")
        mpi, prepared_variables = self._launcher_setup
        HOSTFILE.write_text(format_hostfile(addresses, mpi))
        self._gateway.forget()
        try:
            rendezvous = describe_rendezvous(self._run, addresses, effect.attempt)
            stay = {contract.ORPHAN_SECONDS: str(effect.orphan_seconds)}
            variables = {**prepared_variables, RENDEZVOUS: rendezvous, **stay}
            # There may be fewer ranks than in the launch before.
            arguments = build_command(
                self._run.with_ranks_on(self._workers_named(effect.workers)), mpi
            )
            to_run = (arguments, variables, self._code.directory)
            self._launcher = LauncherProcess(*to_run, self._put, effect.attempt)
        except RunError as problem:
            self._put(LauncherNotStarted(effect.attempt, problem))

    @carries_out(FindCause, work_queues.JUDGE)
    def find_cause(self, effect: FindCause) -> Event:
        """Find why the launcher failed."""
        if self._launcher is None:
            raise RuntimeError("no launcher was started")
        workers = self._workers_named(effect.workers)
        notices = (effect.exception_notices, effect.exit_notices)
        cause = self._launcher.errors.find_cause(workers, effect.exit_code, *notices)
        key_problem = self._gateway.key_problem
        binding_problem = ""
        # Hydra binds no ranks. Workers with other keys would not respond.
        setup = self._launcher_setup
        is_hydra = setup is not None and setup.mpi is not None and setup.mpi.is_hydra
        if effect.asks_for_binding and not is_hydra and not key_problem:
            binding_problem = remote.find_binding_problem(
                self._find_access(), workers, self._run.binding
            )
        evictions = {}
        if effect.terminated and self._api:
            evictions = find_evictions(self._api, effect.terminated, AGAIN_RETRY_SECONDS)
        return CauseFound(effect.attempt, cause, key_problem, binding_problem, evictions)

    @carries_out(AskRanks, work_queues.ASK)
    def ask_ranks(self, effect: AskRanks) -> Event:
        """Ask all ranks to end, unless they may stay."""
        workers = self._workers_named(effect.workers)
        if (
            effect.may_continue
            and self._launcher
            and remote.may_continue(self._find_access(), workers)
        ):
            self._launcher.send(signal.SIGUSR1)
            return RanksAsked(effect.attempt, 0, all_stay=True)
        return RanksAsked(effect.attempt, remote.ask_ranks(self._find_access(), workers))

    @carries_out(ShowStacks, work_queues.STACKS)
    def show_stacks(self, effect: ShowStacks) -> Event:
        """Write the stacks of ranks to the log."""
        places = []
        for name, ranks in effect.ranks.items():
            places += remote.show_stacks(self._find_access(), self._assignment.workers[name], ranks)
        return StacksShown(effect.attempt, places)

    @carries_out(EndLeftovers, work_queues.LEFTOVERS)
    def end_leftovers(self, effect: EndLeftovers) -> None:
        """End processes that earlier attempts left on other workers."""
        watched = self._prober
        if watched is None or watched.is_closed or watched.attempt != effect.attempt:
            return
        # An agent connection with a higher fence number ends the processes of earlier ones: the
        # program itself need not do anything.
        workers = self._workers_named(effect.workers)
        program = ["shared/files.py"]
        try:
            access = self._find_access()
        except RunError as problem:
            log(f"cannot end what earlier attempts may have left: {problem}")
            return
        answers = remote.call(
            access,
            workers,
            program,
            seconds=LEFTOVERS_WITHIN,
            is_stopped=lambda: watched.is_closed,
        )
        for worker, (code, output) in answers.items():
            if code and not watched.is_closed:
                log(f"cannot end what earlier attempts may have left on {worker.name}: {output}")

    @carries_out(FollowProgress)
    def follow_progress(self, effect: FollowProgress) -> None:
        """Read the progress that ranks report."""
        workers = self._workers_named(effect.workers)
        self._progress = ProgressFollower(self._find_access, workers, self._put, effect.attempt)

    @carries_out(StopProgress, work_queues.JUDGE)
    def stop_progress(self, effect: StopProgress) -> Event:
        """Stop reading progress, after the last step if the effect waits for it."""
        progress = self._progress
        self._progress = None
        if progress:
            progress.close(wait_for_last_step=effect.wait_for_last_step)
        return ProgressStopped(effect.attempt)

    @carries_out(StoreResults, work_queues.RESULTS)
    def store_results(self, effect: StoreResults) -> Event:
        """Make the sidecar store the results."""
        return ResultsStored(results.store(effect.timeout_seconds, self._stopped.is_set))
