"""`helm test`: after the run, an allreduce over all its ranks and the bandwidth that it reached."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from events import EventRecorder
from kube import Api, ApiError, Object
from launch import Launcher
from master import train
from settings import FILES, Run, RunError, log, parse_run, report_failure
from statefulsets import scale, scale_to_zero


def wait_for_end(api: Api, name: str) -> None:
    """Wait until the release's run has ended: the test needs the workers for itself.

    A run that is suspended, or whose Job is gone, uses no workers. Raises ApiError.
    """
    job = _read_job(api, name)
    if job and not is_over(job):
        log(f"waiting for the run to end: {name}")
    while job and not is_over(job):
        for event in api.watch("batch/jobs", {"fieldSelector": f"metadata.name={name}"}):
            # After DELETED and ERROR, which need not have the Job, it is read again.
            if event["type"] in ("DELETED", "ERROR") or is_over(event["object"]):
                break
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
    hosts = [host for host in run.hosts if not host.optional]
    args = ["python3", str(FILES / "bandwidth.py")]
    return replace(run, mode=mode, hosts=hosts, args=args)


def main() -> int:
    """Test, and scale the workers as the values ask for after a run."""
    api = Api()
    run = bandwidth_run(parse_run(os.environ["HVD_RUN"]))
    workers = Counter(host.stateful_set for host in run.hosts)
    try:
        wait_for_end(api, os.environ["HVD_TESTED_JOB"])
        scale(api, dict(workers))
        train(run, api, EventRecorder(None), Launcher())
        code = 0
    except RunError as error:
        code = report_failure(error)
    except ApiError as error:
        code = report_failure(RunError(str(error)))
    finally:
        if run.cleanup != "Never":
            scale_to_zero(api, list(workers))
    log("the test passed" if code == 0 else f"the test failed with exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
