"""`helm test`: once the run is over, an allreduce over all its ranks and the bandwidth it had."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from events import Events
from kube import Api, ApiError, Object
from launch import Launcher
from master import train
from settings import FILES, Run, RunError, log, parse_run, report_failure
from statefulsets import scale


def await_end(api: Api, job: str) -> None:
    """Await the end of the release's run, whose workers the test needs for itself.

    A run that is suspended, or whose Job is gone, keeps no workers.
    """
    try:
        found = api.get(f"batch/jobs/{job}")
    except ApiError as problem:
        if problem.status == 404:
            return
        raise
    if is_over(found):
        return
    log(f"waiting for the run to end: {job}")
    while True:
        for event in api.watch("batch/jobs", {"fieldSelector": f"metadata.name={job}"}):
            if event["type"] == "DELETED" or is_over(event["object"]):
                return


def is_over(job: Object) -> bool:
    """Does the Job keep no pod, now and later?"""
    conditions = job.get("status", {}).get("conditions", [])
    ended = any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
    return ended or bool(job["spec"].get("suspend"))


def the_test(run: Run) -> Run:
    """The run with the test's program, launched as the run itself where that can be."""
    mode = {"elastic": "horovodrun", "custom": "mpirun"}.get(run.mode, run.mode)
    hosts = [host for host in run.hosts if not host.optional]
    args = ["python3", str(FILES / "bandwidth.py")]
    return replace(run, mode=mode, hosts=hosts, args=args)


def main() -> int:
    """Test, and leave the workers as the values want them after a run."""
    api = Api()
    run = the_test(parse_run(os.environ["HVD_RUN"]))
    wanted = Counter(host.stateful_set for host in run.hosts)
    try:
        await_end(api, os.environ["HVD_TESTED_JOB"])
        scale(api, dict(wanted))
        train(run, api, Events(None), Launcher())
        code = 0
    except RunError as error:
        code = report_failure(error)
    finally:
        if run.cleanup != "Never":
            scale(api, dict.fromkeys(wanted, 0))
    log("the test passed" if code == 0 else f"the test failed with exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
