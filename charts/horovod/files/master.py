"""The master's main program: find the hosts, launch the ranks, let the workers go."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mesh
import metrics
import ssh
from ending import conclude, find_job, interruption, release_workers
from events import Events
from hosts import Gathering
from kube import Api
from launch import Launcher, command, environment, flavour_for, write_live_hosts
from mpi import HOSTFILE, hostfile
from record import FINISHED, RUNNING, Entry, Record
from settings import ConfigurationError, LaunchError, Run, RunError, log, parse_run, report_failure


def train(run: Run, api: Api | None, events: Events, launcher: Launcher) -> None:
    """Wait for the hosts and run the launcher on them. Raises RunError when that fails."""
    ssh.prepare_master()
    variables = environment(run, os.environ)
    # Before any host is waited for: what is wrong with the launcher is said at once.
    flavour = flavour_for(run, variables)
    line = command(run, flavour)
    events.tell("Started", f"waiting for workers of {run.ranks} ranks")
    log(f"waiting for hosts of {run.ranks} ranks, at most {run.hosts_timeout:.0f} s")
    gathering = Gathering(run, api, launcher.was_stopped)
    metrics.start(run, lambda: events.stage, lambda: len(gathering.addresses()))
    addresses = gathering.wait()
    for host, address in addresses.items():
        log(f"host {host.name} at {address}, {host.slots} slots")
    events.tell("HostsReady", f"{len(addresses)} hosts answer")
    ssh.write_client_config(run.ssh_port, addresses)
    HOSTFILE.write_text(hostfile(list(addresses), flavour))
    if run.elastic:
        write_live_hosts(list(addresses))
        threading.Thread(target=follow, args=(run, gathering), daemon=True).start()
    events.tell("Training", f"{run.mode} starts {run.ranks} ranks on {len(addresses)} hosts")
    code = launcher.run(line, variables)
    if code != 0:
        problem = f"{run.mode} ended with exit code {code}: its last lines above say why"
        raise LaunchError(problem, code)


def follow(run: Run, gathering: Gathering) -> None:
    """Keep an elastic run's list of hosts true."""
    known = gathering.addresses()
    while True:
        now = gathering.wait_for_change(known)
        for host in now.keys() - known.keys():
            log(f"host {host.name} came, at {now[host]}")
        for host in known.keys() - now.keys():
            log(f"host {host.name} went")
        known = now
        ssh.write_client_config(run.ssh_port, known)
        write_live_hosts(list(known))


def attempt(run: Run, api: Api | None, events: Events, record: Record) -> RunError | None:
    """One attempt at the run and what it leaves; None when the training finished."""
    launcher = Launcher()
    record.write(RUNNING)
    problem: RunError | None = None
    try:
        train(run, api, events, launcher)
    except RunError as error:
        problem = error
    job = find_job(api, launcher.stopped) if api else None
    if problem is None:
        log("training finished")
        events.tell("Finished", "the training ended with exit code 0")
    else:
        problem = interruption(job, problem.exit_code) if launcher.stopped else problem
        report(problem, events)
    if api:
        conclude(run, api, job, record, problem)
    elif run.cleanup != "Never":
        log("the workers stay: without a service account the master cannot scale them")
    return problem


def skip(run: Run, api: Api, events: Events, earlier: Entry) -> RunError | None:
    """This very run ended under a Job that is gone, and was asked for again: leave it at that."""
    told = f"this very run {earlier['state'].lower()} at {earlier['time']} already"
    again = "change a value to run it again, for instance master.podAnnotations"
    if earlier["state"] == FINISHED:
        problem = None
        log(f"{told}: nothing to do; {again}")
        events.tell("Finished", f"{told}; {again}")
    else:
        problem = ConfigurationError(f"{told}: {earlier['reason']}; {again}")
        report(problem, events)
    release_workers(run, api, problem.exit_code if problem else 0)
    return problem


def report(problem: RunError, events: Events) -> None:
    """Tell why the attempt failed in the log, the termination message and an event."""
    report_failure(problem)
    events.tell("Failed", str(problem), warning=True)


def main() -> int:
    """Run once; the exit code tells the Job whether another attempt can help."""
    run = parse_run(os.environ["HVD_RUN"])
    api = Api() if run.api else None
    events, record = Events(api), Record(api, run.record)
    earlier = record.earlier_end()
    if api and earlier:
        problem = skip(run, api, events, earlier)
    else:
        problem = attempt(run, api, events, record)
    mesh.end_proxy()
    return problem.exit_code if problem else 0


if __name__ == "__main__":
    sys.exit(main())
