"""The master's main program: wait for the hosts, run the launcher, scale the workers down."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Callable, Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common import metrics, ssh
from hvd_pods.common.errors import (
    EXIT_INTERNAL_ERROR,
    ConfigurationError,
    LostHostError,
    NotANumberError,
    RunError,
    WorkerLeftError,
)
from hvd_pods.common.reporting import log, report_end, report_failure
from hvd_pods.common.run import Host, Pod, Run, parse_run
from hvd_pods.master import connections, mesh, stall
from hvd_pods.master.attempts import Retries, wait
from hvd_pods.master.ending import finish, interruption, present_cleanup, read_job, scale_down
from hvd_pods.master.events import EventRecorder
from hvd_pods.master.hosts import HostRendezvous
from hvd_pods.master.kube import AGAIN_RETRY_SECONDS, START_RETRY_SECONDS, Api
from hvd_pods.master.launch import Launcher, build_command, write_live_hosts
from hvd_pods.master.lease import Lease, SupersededError
from hvd_pods.master.leftover_ranks import end_what_is_left
from hvd_pods.master.lost_hosts import describe_loss, end_when_lost, explain_end
from hvd_pods.master.mpi import HOSTFILE, count_connections, format_hostfile
from hvd_pods.master.preparation import Preparation
from hvd_pods.master.record import FINISHED, Entry, RunRecord
from hvd_pods.master.results import store_results
from hvd_pods.master.spares import describe_spares, record_hosts
from hvd_pods.master.staged import record_nodes
from hvd_pods.master.statefulsets import fit_to_run
from hvd_pods.master.user_code import UserCode

# Seconds until a host that joined, and could not be given the user's code, is tried again: at
# first, and at most, as with packages that pip cannot install.
DELIVER_AGAIN_AFTER, DELIVER_AGAIN_WITHIN = 1.0, 60.0


def train(
    run: Run,
    api: Api | None,
    events: EventRecorder,
    launcher: Launcher,
    preparation: Preparation,
    record: RunRecord | None = None,
) -> None:
    """Wait for the hosts and run the launcher on them. Raises RunError when that fails."""
    # Before waiting for hosts: a problem with the launcher is reported at once.
    implementation, variables = preparation.prepare(run, api, launcher.was_stopped)
    code = preparation.code
    line = build_command(run, implementation)
    connections.prepare(count_connections(run, implementation), len(run.hosts))
    events.emit("Started", f"waiting for workers of {run.ranks} ranks")
    log(f"waiting for hosts of {run.ranks} ranks, at most {run.hosts_timeout:.0f} s")
    announce, announce_loss = (partial(events.warn, name) for name in ("HostsMissing", "HostLost"))
    with closing(HostRendezvous(run, api, launcher.was_stopped, announce)) as rendezvous:
        events.follow_hosts(lambda: len(rendezvous.addresses()))
        addresses = rendezvous.wait()
        for host, address in addresses.items():
            log(f"host {host.name} at {address}, {host.slots} slots")
        spares = describe_spares(run, len(rendezvous.addresses()) - len(addresses))
        events.emit("HostsReady", f"{len(addresses)} hosts respond{spares}")
        ssh.write_client_config(run.ssh_port, addresses)
        pods = rendezvous.pods(addresses)
        code.deliver(pods)
        record_nodes(run, api, pods)
        HOSTFILE.write_text(format_hostfile(run, addresses, implementation))
        if run.elastic:
            if record:
                record.begin_training()
            write_live_hosts(list(addresses))
            following = (run, api, rendezvous, code, addresses, announce_loss)
            threading.Thread(target=follow_hosts, args=following, daemon=True).start()
        else:
            watching = (rendezvous, addresses, launcher, announce_loss)
            threading.Thread(target=end_when_lost, args=watching, daemon=True).start()
            idle = (run, rendezvous, addresses)
            threading.Thread(target=end_what_is_left, args=idle, daemon=True).start()
        events.emit("Training", f"{run.mode} starts {run.ranks} ranks on {len(addresses)} hosts")
        launcher.hosts = lambda: list(rendezvous.addresses() if run.elastic else addresses)
        if record:
            record.hosts = record_hosts(run, addresses)
            if run.fail_on_nan:
                record.progress.on_nan = lambda: launcher.abort(NotANumberError())
            record.progress.follow(launcher.hosts)
        exit_code = launcher.run(line, variables, code.directory)
        problem = explain_end(run, launcher, rendezvous, addresses, exit_code)
        if problem:
            raise problem


def follow_hosts(
    run: Run,
    api: Api | None,
    rendezvous: HostRendezvous,
    code: UserCode,
    listed: dict[Host, str],
    announce_loss: Callable[[str], None],
) -> None:
    """Keep an elastic run's list of hosts up to date, until the rendezvous is closed.

    `listed`: those that are in the list already. Others may have joined while they got the code.
    """
    # Those that ranks may use, and those that answer.
    known = seen = listed
    pause = DELIVER_AGAIN_AFTER
    while True:
        now = rendezvous.wait_for_change(known)
        if now is None:
            return
        for host in now.keys() - seen.keys():
            log(f"host {host.name} joined, at {now[host]}")
        lost = rendezvous.broken(seen.keys() - now.keys())
        if lost:
            announce_loss(describe_loss(lost))
        for host in seen.keys() - now.keys():
            log(f"host {host.name} left{': ' if host in lost else ''}{lost.get(host, '')}")
        seen = now
        ssh.write_client_config(run.ssh_port, now)
        pods = rendezvous.pods(now)
        problem = deliver(code, pods)
        record_nodes(run, api, pods)
        if rendezvous.wait_for_change(now, 0.0) is None:
            # The attempt has ended meanwhile: the list is that of the next one.
            return
        # A host without the code is not used, and counts as one that has not joined.
        known = {host: address for host, address in now.items() if code.is_on(host, pods[host])}
        write_live_hosts(list(known))
        if problem:
            log(f"{problem}; trying again in {pause:g} s, or when hosts join or leave")
            rendezvous.wait_for_change(seen, pause)
        pause = min(2 * pause, DELIVER_AGAIN_WITHIN) if problem else DELIVER_AGAIN_AFTER


def deliver(code: UserCode, pods: Mapping[Host, Pod]) -> RunError | None:
    """Hand the code to pods that may do without it; why some did not get it."""
    try:
        code.deliver(pods)
    except RunError as problem:
        return problem
    return None


def make_attempts(
    run: Run, api: Api | None, events: EventRecorder, record: RunRecord, launcher: Launcher
) -> RunError | None:
    """Make attempts until the training finishes or no other one may follow, and finish the run."""
    job = read_job(api, stopped=False, retry_seconds=START_RETRY_SECONDS) if api else None
    retries, preparation = Retries(None if api else run.retries, job), Preparation()
    while True:
        problem = attempt(run, api, events, record, launcher, preparation)
        if record.lost:
            problem = SupersededError(f"{record.lost} has taken the workers over from this master")
            announce_failure(problem, events)
            return problem
        # Only the end depends on what the Job says: another attempt does not wait long for it.
        within = AGAIN_RETRY_SECONDS if problem and not launcher.stopped else None
        job = read_job(api, launcher.stopped, within) if api else None
        if problem is None:
            log("training finished")
            events.emit("Finished", "the training ended with exit code 0")
            break
        if launcher.stopped:
            problem = interruption(job)
            announce_failure(problem, events)
            break
        announce_failure(problem, events)
        if isinstance(problem, WorkerLeftError):
            record.last_failure, pause = str(problem), 0.0
            log("the next attempt begins at once; this one does not count as a failure")
        else:
            record.count_failure(problem)
            failures, step = record.count.failures, record.progress.step
            pause = retries.pause(problem, launcher.seconds, failures, job, step)
        if (api and job is None) or pause < 0:
            break
        if not wait(pause, launcher.was_stopped):
            problem = interruption(read_job(api, stopped=True) if api else None)
            announce_failure(problem, events)
            break
    run = replace(run, cleanup=present_cleanup(run, job))
    if api:
        finish(run, api, job, record, problem, launcher.stopped)
    elif run.cleanup != "Never":
        log("the workers stay: without a service account the master cannot scale them")
    return problem


def attempt(
    run: Run,
    api: Api | None,
    events: EventRecorder,
    record: RunRecord,
    launcher: Launcher,
    preparation: Preparation,
) -> RunError | None:
    """Make one attempt; why it failed, or None when the training finished."""
    record.begin_attempt()
    launcher.reset()
    if api and not record.lost:
        fit_to_run(api, run)
    try:
        resumed = replace(run, resumed=record.was_training)
        train(resumed, api, events, launcher, preparation, record)
    except RunError as error:
        # The next attempt is compared with the last step. A host that is lost cannot tell it.
        record.progress.close(tells_last=not isinstance(error, LostHostError))
        return error
    record.progress.close(tells_last=True)
    return NotANumberError() if run.fail_on_nan and record.progress.is_nan else None


def repeat_result(run: Run, api: Api, events: EventRecorder, earlier: Entry) -> RunError | None:
    """Report how this run ended before, instead of running it again."""
    result = f"this run already {earlier['state'].lower()} at {earlier['time']}"
    remedy = "to run the same values again, increment master.generation"
    if earlier["state"] == FINISHED:
        problem = None
        log(f"{result}: nothing to do; {remedy}")
        events.emit("Finished", f"{result}; {remedy}")
    else:
        problem = ConfigurationError(f"{result}: {earlier['reason']}; {remedy}")
        announce_failure(problem, events)
    scale_down(run, api, problem.exit_code if problem else 0)
    return problem


def announce_failure(problem: RunError, events: EventRecorder) -> None:
    """Write why the attempt failed to the log, the termination message and an event."""
    report_failure(problem)
    events.emit("Failed", str(problem), warning=True)


def take_lease(lease: Lease, launcher: Launcher, events: EventRecorder) -> None:
    """Wait until no other master controls the workers. Raises RunError."""

    def announce(holder: str) -> None:
        who = f"{holder}, which controls the workers"
        message = f"waiting until {who}, ends or stops renewing its hold"
        log(message)
        events.emit("Waiting", message)

    lease.take(launcher.was_stopped, announce)


def main() -> int:
    """Make attempts; the exit code tells the Job whether to make another master."""
    run = parse_run(os.environ["HVD_RUN"])
    api = Api() if run.api else None
    events, launcher = EventRecorder(api), Launcher()
    if api:
        api.is_stopped = launcher.was_stopped
    lease = Lease(api, run.record, launcher.stop)
    stall.watch(run, launcher, partial(events.warn, "Stalled"))
    counted = (lambda: events.launches, lambda: events.stalls)
    metrics.start(run, lambda: events.stage, events.count_hosts, *counted)
    try:
        take_lease(lease, launcher, events)
        record = RunRecord(api, run, lease)
        earlier = record.read_earlier_result()
        if api and earlier:
            problem = repeat_result(run, api, events, earlier)
        else:
            problem = make_attempts(run, api, events, record, launcher)
        problem = store_results(run, api, events, record, launcher.was_stopped, problem)
    except RunError as error:
        problem = error
        announce_failure(problem, events)
    except Exception:  # noqa: BLE001 - the Job makes another master, which may come further
        traceback.print_exc()
        return EXIT_INTERNAL_ERROR
    finally:
        lease.release()
        events.close()
    mesh.end_proxy()
    return report_end(problem)


if __name__ == "__main__":
    sys.exit(main())
