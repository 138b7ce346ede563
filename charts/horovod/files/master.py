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
from events import Events
from hosts import Gathering
from kube import Api, ApiError
from launch import HOSTFILE, Launcher, command, environment, hostfile, write_live_hosts
from settings import BAD_CONFIGURATION, LaunchError, Run, RunError, fail, parse_run, say


def train(run: Run, api: Api | None, events: Events) -> int:
    """Wait for the hosts and run the launcher on them; its exit code."""
    launcher = Launcher()
    ssh.prepare_master()
    events.tell("Waiting", f"for workers of {run.ranks} ranks")
    say(f"waiting for hosts of {run.ranks} ranks, at most {run.hosts_timeout:.0f} s")
    gathering = Gathering(run, api)
    metrics.start(run, lambda: events.stage, lambda: len(gathering.addresses()))
    addresses = gathering.wait()
    for host, address in addresses.items():
        say(f"host {host.name} at {address}, {host.slots} slots")
    events.tell("Training", f"{run.mode} starts {run.ranks} ranks on {len(addresses)} hosts")
    ssh.write_client_config(run.ssh_port, addresses)
    HOSTFILE.write_text(hostfile(list(addresses)))
    if run.elastic:
        write_live_hosts(list(addresses))
        threading.Thread(target=follow, args=(run, gathering), daemon=True).start()
    return launcher.run(command(run), environment(run, os.environ))


def follow(run: Run, gathering: Gathering) -> None:
    """Keep an elastic run's list of hosts true."""
    known = gathering.addresses()
    while True:
        now = gathering.wait_for_change(known)
        for host in now.keys() - known.keys():
            say(f"host {host.name} came, at {now[host]}")
        for host in known.keys() - now.keys():
            say(f"host {host.name} went")
        known = now
        ssh.write_client_config(run.ssh_port, known)
        write_live_hosts(list(known))


def was_last_attempt(run: Run, api: Api, code: int) -> bool:
    """Will the Job not try again after this attempt ends with `code`?"""
    if code in (0, BAD_CONFIGURATION):
        return True
    status = api.get(f"batch/jobs/{os.environ['HVD_JOB']}").get("status", {})
    return int(status.get("failed", 0)) >= run.backoff_limit


def clean_up(run: Run, api: Api | None, code: int) -> None:
    """Scale the workers to 0 when the run is over and the values ask for it."""
    if run.cleanup == "Never" or (run.cleanup == "OnSuccess" and code != 0):
        return
    if api is None:
        say("the workers stay: without a service account the master cannot scale them")
        return
    if not was_last_attempt(run, api, code):
        return
    for name in run.stateful_sets:
        api.merge_patch(f"apps/statefulsets/{name}/scale", {"spec": {"replicas": 0}})
    say("workers scaled to 0")


def attempt(run: Run, api: Api | None, events: Events) -> int:
    """One attempt at the run, told of in log and events; the exit code."""
    try:
        code = train(run, api, events)
        if code != 0:
            problem = f"{run.mode} ended with exit code {code}: its last lines above say why"
            raise LaunchError(problem, code)
    except RunError as error:
        events.tell("Failed", str(error), warning=True)
        return fail(error)
    say("training finished")
    events.tell("Finished", "the training ended with exit code 0")
    return 0


def main() -> int:
    """Run once; the exit code tells the Job whether another attempt can help."""
    run = parse_run(os.environ["HVD_RUN"])
    api = Api() if run.api else None
    code = attempt(run, api, Events(api))
    try:
        clean_up(run, api, code)
    except (ApiError, OSError) as problem:
        # The training's own result stands; the workers that were left are named.
        say(f"cannot scale {', '.join(run.stateful_sets)} to 0: {problem}")
    mesh.end_proxy()
    return code


if __name__ == "__main__":
    sys.exit(main())
