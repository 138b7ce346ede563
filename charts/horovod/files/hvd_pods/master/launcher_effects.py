"""Carries out the effects on the launcher: prepares, starts and ends it, and finds why it ended."""

from __future__ import annotations

import os
import signal
import sys
from typing import Mapping, NamedTuple

from hvd_pods.cluster.kube import Api
from hvd_pods.cluster.statefulsets import find_evictions
from hvd_pods.master import launcher_memory, remote, work_queues
from hvd_pods.master.effect_registry import carries_out
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
from hvd_pods.master.user_code import UserCode
from hvd_pods.master.worker_access import WorkerAccess
from hvd_pods.rules.effects import (
    RESTART_RETRY_SECONDS,
    AskRanksToEnd,
    CheckRanks,
    DetachLauncher,
    EndLauncher,
    FindCause,
    Prepare,
    StartLauncher,
)
from hvd_pods.rules.events import (
    CauseFound,
    Event,
    EventSink,
    LauncherNotStarted,
    Prepared,
    RanksAskedToEnd,
    RanksChecked,
)
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared import contract
from hvd_pods.shared.errors import RunError


class LauncherSetup(NamedTuple):
    """The setup of an attempt's launcher, which a work queue prepares.

    `mpi` is None if the chart starts the ranks.
    """

    mpi: MpiImplementation | None
    variables: Mapping[str, str]


class LauncherEffects:
    """Drives the launcher for the master.

    All attempts share the code and the setup. The first attempt that needs them prepares them.
    Otherwise they would slow down each restart: by a request to the API server, and a call of
    mpirun.
    """

    def __init__(
        self,
        assignment: Assignment,
        api: Api | None,
        access: WorkerAccess,
        put: EventSink,
        code: UserCode,
    ) -> None:
        self._assignment = assignment
        self._run = assignment.run
        self._api = api
        self._access = access
        self._put = put
        self._code = code
        self._gateway = Gateway(access.find, put)
        self._setup: LauncherSetup | None = None
        self._launcher: LauncherProcess | None = None

    def set_up(self, effect: Prepare) -> Event:
        """Prepare the launcher of an attempt, in a work queue."""
        run = self._run
        before = self._setup
        try:
            if before is None:
                self._access.take_keys()
                write_ssh(sys.executable)
                self._gateway.start()
                self._code.unpack()
            inherited = build_environment(run, {**os.environ, **self._access.variables})
            variables = self._code.prepare_launcher(run.mode, inherited)
            mpi = before.mpi if before else select_mpi(run, variables)
            # The first attempt that gets here sets it, once.
            self._setup = LauncherSetup(mpi, variables)
            launcher_memory.prepare(count_clients(run), len(run.workers))
            self._code.forget()
            # Detect a command that cannot be built before there are workers.
            build_command(run, mpi)
        except RunError as problem:
            return Prepared(effect.attempt, problem)
        return Prepared(effect.attempt)

    @carries_out(StartLauncher)
    def start_launcher(self, effect: StartLauncher) -> None:
        """Start the launcher on the workers of an attempt."""
        addresses = {
            self._assignment.workers[name]: address for name, address in effect.addresses.items()
        }
        if self._setup is None:
            raise RuntimeError("no launcher was prepared")
        mpi, prepared_variables = self._setup
        HOSTFILE.write_text(format_hostfile(addresses, mpi))
        self._gateway.forget()
        try:
            rendezvous = describe_rendezvous(self._run, addresses, effect.attempt)
            stay = {contract.ORPHAN_SECONDS: str(effect.orphan_seconds)}
            variables = {**prepared_variables, contract.RENDEZVOUS: rendezvous, **stay}
            # There may be fewer ranks than in the launch before.
            workers = self._access.workers_named(effect.workers)
            arguments = build_command(self._run.with_ranks_on(workers), mpi)
            self._launcher = LauncherProcess(
                arguments, variables, self._code.directory, self._put, effect.attempt
            )
        except RunError as problem:
            self._put(LauncherNotStarted(effect.attempt, problem))

    @carries_out(EndLauncher)
    def end_launcher(self, effect: EndLauncher) -> None:
        """Send the launcher a signal."""
        if self._launcher:
            self._launcher.send(signal.SIGKILL if effect.kills else signal.SIGTERM)

    @carries_out(DetachLauncher)
    def detach_launcher(self, effect: DetachLauncher) -> None:
        """Make the launcher exit without its ranks."""
        if self._launcher:
            self._launcher.send(signal.SIGUSR1)

    @carries_out(CheckRanks, work_queues.ASK)
    def check_ranks(self, effect: CheckRanks) -> Event:
        """Ask the workers whether all ranks may go on without a master."""
        workers = self._access.workers_named(effect.workers)
        return RanksChecked(effect.attempt, remote.may_continue(self._access.find(), workers))

    @carries_out(AskRanksToEnd, work_queues.ASK)
    def ask_ranks_to_end(self, effect: AskRanksToEnd) -> Event:
        """Ask all ranks to end."""
        workers = self._access.workers_named(effect.workers)
        return RanksAskedToEnd(
            effect.attempt, remote.ask_ranks_to_end(self._access.find(), workers)
        )

    @carries_out(FindCause, work_queues.JUDGE)
    def find_cause(self, effect: FindCause) -> Event:
        """Find why the launcher failed."""
        if self._launcher is None:
            raise RuntimeError("no launcher was started")
        workers = self._access.workers_named(effect.workers)
        notices = (effect.exception_notices, effect.exit_notices)
        cause = self._launcher.errors.find_cause(workers, effect.exit_code, *notices)
        key_problem = self._gateway.key_problem
        binding_problem = ""
        # Hydra binds no ranks. Workers with other keys would not respond.
        is_hydra = bool(self._setup and self._setup.mpi and self._setup.mpi.is_hydra)
        if effect.asks_for_binding and not is_hydra and not key_problem:
            binding_problem = remote.find_binding_problem(
                self._access.find(), workers, self._run.binding
            )
        evictions = {}
        if effect.terminated and self._api:
            evictions = find_evictions(self._api, effect.terminated, RESTART_RETRY_SECONDS)
        return CauseFound(effect.attempt, cause, key_problem, binding_problem, evictions)
