"""Carries the effects out that `decide` asks for. What takes time happens in lanes."""

from __future__ import annotations

import copy
import os
import queue
import signal
import sys
import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Mapping, Sequence

from hvd_pods.agent.keys import Keys
from hvd_pods.cluster.addresses import DnsAddresses, SliceAddresses
from hvd_pods.cluster.job_events import JobEvents
from hvd_pods.cluster.key_secrets import find_keys
from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.cluster.shapes import AGAIN_RETRY_SECONDS, shorten
from hvd_pods.cluster.spawn import spawn
from hvd_pods.cluster.staged import add_nodes
from hvd_pods.cluster.statefulsets import (
    creation_failure,
    find_evictions,
    fit_to_run,
    is_gone,
    scale_to_zero,
    set_number,
)
from hvd_pods.common import contract
from hvd_pods.common.contract import ATTEMPT, FENCE, MEETING, NOTICES, RUN_ID
from hvd_pods.common.errors import RunError
from hvd_pods.common.reporting import log, report_failure
from hvd_pods.common.run import Code, Worker
from hvd_pods.master import launcher_memory, remote, results
from hvd_pods.master.agent_session import Where
from hvd_pods.master.gateway import Gateway
from hvd_pods.master.launch import (
    build_command,
    build_environment,
    check_line,
    describe_meeting,
    select_mpi,
    write_ssh,
)
from hvd_pods.master.launcher_process import LauncherProcess
from hvd_pods.master.mpi import HOSTFILE, MpiImplementation, count_clients, format_hostfile
from hvd_pods.master.notice_server import NoticeServer
from hvd_pods.master.probing import Prober
from hvd_pods.master.progress import ProgressFollower
from hvd_pods.master.record_io import RecordClient, read_job, read_lease
from hvd_pods.master.user_code import UserCode
from hvd_pods.rules import messages as m
from hvd_pods.rules.state import Facts, State

# Seconds in which a worker has to end leftovers.
LEFTOVERS_WITHIN = 60.0
# Pods that are deleted at once.
DELETE_THREADS = 8
# Lanes. Writes of the record stay in order. While the API server hangs, what an attempt waits for
# (the Job, the end of the attempt before) does not wait for calls that may be late.
RECORD = "record"
JOB = "job"
LEASE = "lease"
PODS = "pods"
PREPARE = "prepare"
DELIVER = "deliver"
GROW = "prepare-newcomers"
JUDGE = "judge"
RESULTS = "results"
ASK = "ask-ranks"
STACKS = "show-stacks"
LEFTOVERS = "end-leftovers"

Call = Callable[[], "m.Event | None"]


class Effects:
    """Everything that the master does. `exit` is set by the last effect, an Exit."""

    def __init__(self, facts: Facts, api: Api | None, job_events: JobEvents, put: m.Put) -> None:
        self._facts = facts
        self._run = facts.run
        self._api = api
        self._put = put
        self._notices = NoticeServer(os.environ[contract.POD_IP], facts.run, put)
        self._lanes = Lanes(put)
        self._record = RecordClient(api, facts) if api else None
        # This pod was asked to end.
        self._stopped = threading.Event()
        # What the log says once in an attempt.
        self._logged: set[str] = set()
        # What all attempts share; the first one that needs it prepares it. It would be on the way
        # of each restart: a request to the API server, and a call of mpirun.
        self._code = UserCode(Code())
        # None where the chart starts the ranks.
        self._mpi: MpiImplementation | None = None
        self._is_prepared = False
        self._keys: Future[Keys] = Future()
        self._where = Where(self._run.agent_port, {})
        self._gateway = Gateway(self._reach, put)
        # The variables of the present attempt. Threads read them: they are replaced, never changed.
        self._of_attempt: Mapping[str, str] = {}
        self._variables: dict[str, str] = {}
        self._arguments: Sequence[str] = ()
        self._prober: Prober | None = None
        self._launcher: LauncherProcess | None = None
        self._progress: ProgressFollower | None = None
        self.exit: m.Exit | None = None
        if api:
            api.is_stopped = self._stopped.is_set
        self._at_once: Mapping[type, Callable[[Any], object]] = {
            m.Log: lambda effect: log(effect.message),
            m.CreateJobEvent: lambda e: job_events.put(
                e.event.reason, e.message, e.event.is_warning
            ),
            m.ReportFailure: self._report_failure,
            m.WatchWorkers: self._watch_workers,
            m.FreezeAddresses: self._freeze_addresses,
            m.LoseWorkersAfter: self._lose_workers_after,
            m.StopWatching: self._stop_watching,
            m.Prepare: self._begin_attempt,
            m.StartLauncher: self._start_launcher,
            m.EndLauncher: self._end_launcher,
            m.ReleaseRanks: lambda effect: self._notices.release(effect.connections),
            m.FollowProgress: self._follow_progress,
            m.Interrupt: lambda effect: self._stopped.set(),
            m.Exit: self._exit,
        }
        self._calls: dict[type, tuple[str, Callable[[Any], m.Event | None]]] = {
            m.ReadJob: (JOB, self._read_job),
            m.ReadLease: (LEASE, lambda effect: read_lease(self._access)),
            m.ListPods: (PODS, self._list_pods),
            m.DeletePods: (PODS, self._delete_pods),
            m.ScaleUp: (PODS, self._scale_up),
            m.Deliver: (DELIVER, self._deliver),
            m.PrepareNewcomers: (GROW, self._prepare_newcomers),
            m.FindCause: (JUDGE, self._find_cause),
            m.AskRanks: (ASK, self._ask_ranks),
            m.ShowStacks: (STACKS, self._show_stacks),
            m.EndLeftovers: (LEFTOVERS, self._end_leftovers),
            m.StopProgress: (JUDGE, self._stop_progress),
            m.ScaleDown: (PODS, self._scale_down),
            m.StoreResults: (RESULTS, self._store_results),
            m.ReadRecord: (RECORD, self._read_record),
            m.WriteRecord: (RECORD, self._write_record),
            m.ReleaseRecord: (RECORD, self._release_record),
        }

    def carry_out(self, effect: m.Effect) -> None:
        """Carry an effect out, or ask a lane for it."""
        kind = type(effect)
        if isinstance(effect, m.WorkerEffect):
            self._note_addresses(effect.addresses)
        if kind in self._calls:
            lane, work = self._calls[kind]
            self._lanes.call(lane, partial(work, effect))
        else:
            self._at_once[kind](effect)

    def give_up(self, state: State) -> None:
        """After a defect: end what runs, and let another master have the record at once."""
        self._stop_watching(m.StopWatching())
        self._end_launcher(m.EndLauncher())
        hold = state.hold
        if self._record and hold.is_held and not hold.lost_to:
            self._release_record(m.ReleaseRecord(state.news(), hold.fence))

    @property
    def _access(self) -> Api:
        assert self._api  # noqa: S101 - without access to the API nothing asks for it
        return self._api

    def _of(self, names: Sequence[str]) -> list[Worker]:
        return [self._facts.workers[name] for name in names]

    def _exit(self, effect: m.Exit) -> None:
        self.exit = effect

    def _report_failure(self, effect: m.ReportFailure) -> None:
        report_failure(effect.problem)

    @property
    def _records(self) -> RecordClient:
        assert self._record  # noqa: S101 - without access to the API nothing asks for it
        return self._record

    def _read_record(self, effect: m.ReadRecord) -> m.Event:
        return self._records.read(effect)

    def _write_record(self, effect: m.WriteRecord) -> m.Event:
        return self._records.write(effect)

    def _release_record(self, effect: m.ReleaseRecord) -> m.Event:
        return self._records.release(effect)

    def _take_keys(self) -> None:
        """Find the master's keys, or make them. Raises RunError."""
        if not self._keys.done():
            folder = find_keys(self._api, self._run)
            keys = Keys(str(folder), self._run.worker_name)
            keys.client()
            self._keys.set_result(keys)

    def _reach(self) -> remote.Reach:
        """Return how workers are reached now. Raises RunError if the keys are not found in time."""
        try:
            keys = self._keys.result(LEFTOVERS_WITHIN)
        except FutureTimeoutError:
            raise RunError("the master has no keys yet") from None
        return remote.Reach(keys, self._where, self._of_attempt)

    def _note_addresses(self, addresses: Mapping[str, str]) -> None:
        """Note where workers are, by each of their names.

        The loop's thread alone does so; other threads read what it has replaced.
        """
        workers = {self._facts.workers[name]: address for name, address in addresses.items()}
        found = {name: a for worker, a in workers.items() for name in (worker.name, worker.address)}
        # Workers of a launch stay known while others are looked at.
        self._where = self._where._replace(addresses={**self._where.addresses, **found})

    def _begin_attempt(self, effect: m.Prepare) -> None:
        self._logged = set()
        self._notices.begin(effect.attempt, effect.fence)
        # Each request has them (worker/fence.py), and the launcher inherits them.
        self._of_attempt = {
            RUN_ID: self._run.id,
            ATTEMPT: str(effect.attempt),
            FENCE: str(effect.fence),
            NOTICES: self._notices.address,
        }
        if effect.fits:
            self._lanes.call(PODS, self._fit_workers)
        self._lanes.call(PREPARE, partial(self._prepare, effect))

    def _fit_workers(self) -> None:
        if not self._stopped.is_set():
            fit_to_run(self._access, self._run)

    def _watch_workers(self, effect: m.WatchWorkers) -> None:
        run = self._run
        api = self._api
        source = SliceAddresses(api, run) if api else DnsAddresses(run.workers)
        to_ask = (run.workers, run.agent_port, source)
        self._prober = Prober(*to_ask, self._put, effect.attempt, run.lost_after)
        self._prober.start()
        self._lanes.call(PREPARE, self._look_for_keys)

    def _look_for_keys(self) -> None:
        # What an earlier master has left is ended before the attempt is prepared, which says why
        # there are no keys.
        with suppress(RunError):
            self._take_keys()

    def _freeze_addresses(self, effect: m.FreezeAddresses) -> None:
        if self._prober:
            self._prober.freeze(effect.workers)

    def _lose_workers_after(self, effect: m.LoseWorkersAfter) -> None:
        if self._prober and self._prober.attempt == effect.attempt:
            self._prober.lose_after(effect.seconds)

    def _end_launcher(self, effect: m.EndLauncher) -> None:
        if self._launcher:
            self._launcher.send(signal.SIGKILL if effect.kills else signal.SIGTERM)

    def _stop_watching(self, effect: m.StopWatching) -> None:
        if self._prober:
            self._prober.close()

    def _prepare(self, effect: m.Prepare) -> m.Event:
        run = self._run
        try:
            if not self._is_prepared:
                self._take_keys()
                write_ssh(sys.executable)
                self._gateway.start()
                within = run.workers_timeout if run.requirements else 0.0
                self._code = UserCode(run.code, within, self._stopped.is_set)
                self._code.unpack()
                check_line(run)
            inherited = build_environment(run, {**os.environ, **self._of_attempt})
            self._variables = self._code.prepare_launcher(run.mode, inherited)
            if not self._is_prepared:
                self._mpi = select_mpi(run, self._variables)
                self._is_prepared = True
            launcher_memory.prepare(count_clients(run), len(run.workers))
            self._code.forget()
            self._arguments = build_command(run, self._mpi)
        except RunError as problem:
            return m.Prepared(effect.attempt, problem)
        return m.Prepared(effect.attempt)

    def _read_job(self, effect: m.ReadJob) -> m.Event:
        return read_job(self._access, self._run, effect)

    def _list_pods(self, effect: m.ListPods) -> m.Event:
        api = self._access
        run = self._run
        refusals = {}
        query = {"labelSelector": run.worker_selector}
        try:
            items, _ = api.list_all("core/pods", query, retry_seconds=0.0)
        except ApiError as problem:
            return m.PodsListed(effect.attempt, problem=str(problem))
        pods = {item["metadata"]["name"]: shorten(item) for item in items}
        for worker in self._of([name for name in effect.missing if name not in pods]):
            # The controller stops at the first pod that is refused, which stands for all.
            if worker.stateful_set not in refusals:
                refusals[worker.stateful_set] = creation_failure(api, worker.stateful_set)
        gone = tuple(name for name in refusals if is_gone(api, name))
        return m.PodsListed(effect.attempt, pods, refusals, gone)

    def _delete_pods(self, effect: m.DeletePods) -> None:
        def delete(name: str, uid: str) -> None:
            try:
                api = self._access
                grace = effect.grace
                api.delete(f"core/pods/{name}", uid, retry_seconds=0.0, grace=grace)
            except ApiError as problem:
                # Somebody else deleted it, and perhaps there is a new one.
                if problem.status not in (404, 409):
                    self._log_once(f"cannot replace {name}: {problem}")

        if not self._stopped.is_set():
            with ThreadPoolExecutor(DELETE_THREADS) as pool:
                list(pool.map(delete, effect.uids.keys(), effect.uids.values()))

    def _scale_up(self, effect: m.ScaleUp) -> None:
        name = effect.stateful_set
        number = effect.number
        try:
            if not self._stopped.is_set():
                kept = range(effect.below, sys.maxsize)
                set_number(self._access, name, number, 0.0, kept)
        except ApiError as problem:
            self._log_once(f"cannot scale {name} to {number}: {problem}")

    def _log_once(self, text: str) -> None:
        """Log a text once in an attempt: deleting and scaling are retried every few seconds."""
        if text not in self._logged:
            self._logged.add(text)
            log(text)

    def _deliver(self, effect: m.Deliver) -> m.Event:
        pods = {self._facts.workers[name]: pod for name, pod in effect.pods.items()}
        # Also those without ranks.
        answering = self._of([*effect.addresses])
        if effect.orphan_fence and self._have_finished(effect, answering):
            return m.Delivered(effect.attempt, [], is_finished=True)
        if effect.saves:
            remote.save_kept(self._reach(), answering, self._stopped.is_set)
        problem = None
        try:
            self._code.deliver(self._reach(), pods)
        except RunError as error:
            problem = error
        add_nodes(self._run, self._api, pods)
        reached = [worker.name for worker, pod in pods.items() if self._code.is_on(worker, pod)]
        return m.Delivered(effect.attempt, reached, problem)

    def _prepare_newcomers(self, effect: m.PrepareNewcomers) -> m.Event:
        workers = self._of(effect.workers)
        pods = {self._facts.workers[name]: pod for name, pod in effect.pods.items()}
        watched = self._prober
        # The next attempt hands the code out again, and finds the packages installed.
        code = copy.copy(self._code)
        code.forget()

        def is_over() -> bool:
            return self._stopped.is_set() or watched is None or watched.is_closed

        try:
            if not remote.are_kept(self._reach(), workers):
                return m.NewcomersReady(effect.attempt, [*effect.pods], is_kept=False)
            code.deliver(self._reach(), pods)
            ready = remote.wait_until_warm(self._reach(), [*pods], is_over)
        except RunError as problem:
            return m.NewcomersReady(effect.attempt, [], is_kept=True, problem=problem)
        return m.NewcomersReady(effect.attempt, [worker.name for worker in ready], is_kept=True)

    def _have_finished(self, effect: m.Deliver, workers: Sequence[Worker]) -> bool:
        number = remote.count_finished(
            self._reach(), workers, effect.orphan_fence, self._stopped.is_set
        )
        return number == effect.orphan_ranks

    def _start_launcher(self, effect: m.StartLauncher) -> None:
        addresses = {self._facts.workers[n]: address for n, address in effect.addresses.items()}
        HOSTFILE.write_text(format_hostfile(addresses, self._mpi))
        self._gateway.forget()
        try:
            meeting = describe_meeting(self._run, addresses, effect.attempt)
            stay = {contract.STAY_WITHIN: str(effect.stay)}
            variables = {**self._variables, MEETING: meeting, **stay}
            # There may be fewer ranks than in the launch before.
            self._arguments = build_command(self._run.on(self._of(effect.workers)), self._mpi)
            to_run = (self._arguments, variables, self._code.directory)
            self._launcher = LauncherProcess(*to_run, self._put, effect.attempt)
        except RunError as problem:
            self._put(m.LauncherNotStarted(effect.attempt, problem))

    def _find_cause(self, effect: m.FindCause) -> m.Event:
        assert self._launcher  # noqa: S101 - it has ended
        workers = self._of(effect.workers)
        notices = (effect.raised, effect.failed)
        cause = self._launcher.errors.find_cause(workers, effect.code, *notices)
        key_problem = self._gateway.key_problem
        binding_problem = ""
        # Hydra binds no ranks. Workers that have other keys would not answer.
        is_hydra = self._mpi is not None and self._mpi.hydra
        if effect.asks_for_binding and not is_hydra and not key_problem:
            binding_problem = remote.find_binding_problem(self._reach(), workers, self._run.binding)
        evictions = {}
        if effect.terminated and self._api:
            evictions = find_evictions(self._api, effect.terminated, AGAIN_RETRY_SECONDS)
        return m.CauseFound(effect.attempt, cause, key_problem, binding_problem, evictions)

    def _ask_ranks(self, effect: m.AskRanks) -> m.Event:
        workers = self._of(effect.workers)
        if effect.may_stay and self._launcher and remote.may_stay(self._reach(), workers):
            self._launcher.send(signal.SIGUSR1)
            return m.RanksAsked(effect.attempt, 0, go_on=True)
        return m.RanksAsked(effect.attempt, remote.ask_ranks(self._reach(), workers))

    def _show_stacks(self, effect: m.ShowStacks) -> m.Event:
        places = []
        for name, ranks in effect.ranks.items():
            places += remote.show_stacks(self._reach(), self._facts.workers[name], ranks)
        return m.StacksShown(effect.attempt, places)

    def _end_leftovers(self, effect: m.EndLeftovers) -> None:
        watched = self._prober
        if watched is None or watched.is_closed or watched.attempt != effect.attempt:
            return
        # An agent connection with a higher fence number ends what earlier ones have left: the
        # program need do nothing.
        workers = self._of(effect.workers)
        program = ["common/files.py"]
        try:
            reach = self._reach()
        except RunError as problem:
            log(f"cannot end what earlier attempts may have left: {problem}")
            return
        answers = remote.call(
            reach,
            workers,
            program,
            seconds=LEFTOVERS_WITHIN,
            is_stopped=lambda: watched.is_closed,
        )
        for worker, (code, output) in answers.items():
            if code and not watched.is_closed:
                log(f"cannot end what earlier attempts may have left on {worker.name}: {output}")

    def _follow_progress(self, effect: m.FollowProgress) -> None:
        workers = self._of(effect.workers)
        self._progress = ProgressFollower(self._reach, workers, self._put, effect.attempt)

    def _stop_progress(self, effect: m.StopProgress) -> m.Event:
        progress = self._progress
        self._progress = None
        if progress:
            progress.close(wait_for_last_step=effect.wait_for_last_step)
        return m.ProgressStopped(effect.attempt)

    def _scale_down(self, effect: m.ScaleDown) -> m.Event:
        scale_to_zero(self._access, self._run.stateful_sets)
        return m.WorkersScaled()

    def _store_results(self, effect: m.StoreResults) -> m.Event:
        return m.ResultsStored(results.store(effect.within, self._stopped.is_set))


class Lanes:
    """Threads by name, each from its first call on; a lane makes its calls in their order.

    What a call returns is put on the loop's queue. No lane keeps the pod from ending.
    """

    def __init__(self, put: m.Put) -> None:
        self._put = put
        self._lanes: dict[str, queue.SimpleQueue[Call]] = {}

    def call(self, lane: str, work: Call) -> None:
        """Make a call when those before it in this lane have returned."""
        if lane not in self._lanes:
            self._lanes[lane] = queue.SimpleQueue()
            spawn(lane, lambda: self._follow(self._lanes[lane]))
        self._lanes[lane].put(work)

    def _follow(self, calls: queue.SimpleQueue[Call]) -> None:
        while True:
            work = calls.get()
            try:
                event = work()
            except Exception:  # noqa: BLE001 - the loop ends with it, and the Job retries
                event = m.Defect(traceback.format_exc())
            if event:
                self._put(event)
