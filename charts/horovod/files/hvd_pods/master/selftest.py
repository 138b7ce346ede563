"""`helm test`: after the run, an allreduce over all its ranks and the bandwidth that it reached.

The test holds the release's record as a run does, so it never runs beside one. It ends by itself
before Helm stops waiting for it, and leaves as many workers as it found.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common.errors import RunError
from hvd_pods.common.fence import EPOCH
from hvd_pods.common.paths import PROGRAMS
from hvd_pods.common.reporting import log, report_failure
from hvd_pods.common.run import Run, parse_run
from hvd_pods.master.events import EventRecorder
from hvd_pods.master.kube import Api, ApiError, Object
from hvd_pods.master.launch import Launcher
from hvd_pods.master.lease import Lease
from hvd_pods.master.main import train
from hvd_pods.master.preparation import Preparation
from hvd_pods.master.statefulsets import scale

# Seconds until the test ends, whatever it waits for. Helm's default time-out is 300 s, and counts
# the start of the pod, too.
LIMIT = 240.0
# Seconds before that at which it stops to wait for the run and for hosts, and says which.
SPARE = 10.0
# Seconds until the Job is looked at again when it cannot be watched.
LOOK_EVERY = 1.0
REMEDY = "run `helm test` again when the run has ended (hvdchart status, or kubectl get jobs)"


def wait_for_end(api: Api, name: str, until: float) -> None:
    """Wait until the release's run has ended: the test needs the workers for itself.

    A run that is suspended, or whose Job is gone, uses no workers. Raises ApiError when the Job
    cannot be read, and RunError at `until`, by time.monotonic().
    """
    job = _read_job(api, name)
    if job and not is_over(job):
        log(f"waiting for the run to end: {name}")
    while job and not is_over(job):
        seconds = int(until - time.monotonic())
        if seconds <= 0:
            raise RunError(f"the run has not ended within {LIMIT:.0f} s: {REMEDY}")
        query = {"fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(seconds)}
        try:
            for event in api.watch("batch/jobs", query):
                # After DELETED and ERROR, which need not have the Job, it is read again.
                if event["type"] in ("DELETED", "ERROR") or is_over(event["object"]):
                    break
        except ApiError as problem:
            log(f"cannot watch the Job: {problem}; trying again")
            time.sleep(LOOK_EVERY)
        job = _read_job(api, name)


def _read_job(api: Api, name: str) -> Object | None:
    try:
        return api.get(f"batch/jobs/{name}")
    except ApiError as problem:
        if problem.status == 404:
            return None
        raise


def is_over(job: Object) -> bool:
    """Whether the Job has no pod and creates none."""
    conditions = job.get("status", {}).get("conditions", [])
    ended = any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
    return ended or bool(job["spec"].get("suspend"))


def bandwidth_run(run: Run) -> Run:
    """Return the run with the test's program, started by the run's own launcher where possible."""
    mode = {"elastic": "horovodrun", "custom": "mpirun"}.get(run.mode, run.mode)
    # Where the test runs without an elastic launcher, a host that may join would be a spare.
    hosts = [host for host in run.hosts if not (run.elastic and host.optional)]
    args = ["python3", str(PROGRAMS / "rank" / "bandwidth.py")]
    return replace(run, mode=mode, hosts=hosts, args=args)


class Workers:
    """The StatefulSets: scaled up for the test where workers are missing, and then as before."""

    def __init__(self, api: Api, run: Run, job: str) -> None:
        self._api, self._job = api, job
        self._needed = run.needed_workers
        self._found: dict[str, int] = {}

    def provide(self) -> None:
        """Create the workers that are missing. Those of a failed run are used as they are."""
        for name, needed in self._needed.items():
            current = self._api.get(f"apps/statefulsets/{name}/scale")["spec"].get("replicas", 0)
            if current < needed:
                scale(self._api, {name: needed})
                self._found[name] = current

    def restore(self) -> None:
        """Scale to the numbers that were found, unless an upgrade needs the workers by now."""
        try:
            job = _read_job(self._api, self._job)
            if job is None or is_over(job):
                scale(self._api, self._found)
        except ApiError as problem:
            # An upgrade allows the release's master to read the new Job only.
            log(f"the number of workers stays as it is: {problem}")


def test(api: Api, run: Run, launcher: Launcher, lease: Lease, until: float) -> None:
    """Wait for the workers, and measure on them. Raises RunError or ApiError."""
    job = os.environ["HVD_TESTED_JOB"]
    wait_for_end(api, job, until)
    lease.take(launcher.was_stopped, lambda holder: log(f"waiting for {holder}"), until)
    os.environ[EPOCH] = str(lease.epoch)
    workers = Workers(api, run, job)
    left = max(1.0, until - time.monotonic())
    try:
        workers.provide()
        timeout = min(run.hosts_timeout, left)
        hurried = replace(run, hosts_timeout=timeout, wait_until=time.monotonic() + left)
        # The events are the run's.
        train(hurried, api, EventRecorder(None), launcher, Preparation())
    finally:
        if not lease.lost:
            workers.restore()


def main() -> int:
    """Test, and leave as many workers as there were."""
    api, launcher, is_late = Api(), Launcher(), threading.Event()
    api.is_stopped = launcher.was_stopped
    run = bandwidth_run(parse_run(os.environ["HVD_RUN"]))
    lease = Lease(api, run.record, launcher.stop)

    def end_on_timeout() -> None:
        is_late.set()
        launcher.stop()

    timer = threading.Timer(LIMIT, end_on_timeout)
    timer.daemon = True
    timer.start()
    code = 0
    try:
        test(api, run, launcher, lease, time.monotonic() + LIMIT - SPARE)
    except (RunError, ApiError) as problem:
        error = problem if isinstance(problem, RunError) else RunError(str(problem))
        late = RunError(f"the test did not end within {LIMIT:.0f} s: {REMEDY}")
        code = report_failure(late if is_late.is_set() else error)
    finally:
        lease.release()
        timer.cancel()
    log("the test passed" if code == 0 else f"the test failed with exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
