"""`helm test`: after the run, an allreduce over all its ranks and the bandwidth that it reached.

The test holds the release's record as a run does, so it never runs beside one. It ends by itself
before Helm stops waiting for it, and leaves as many workers as it found.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.cluster.job_events import EventRecorder
from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.common import contract
from hvd_pods.common.errors import RunError
from hvd_pods.common.paths import PROGRAMS
from hvd_pods.common.reporting import log, report_failure
from hvd_pods.common.run import Run, parse_run
from hvd_pods.master.main import Master, describe_self, end_on
from hvd_pods.master.record_io import has_ended
from hvd_pods.rules.messages import Terminated
from hvd_pods.rules.state import Facts

# Seconds until the test ends, whatever it waits for. Helm's default time-out is 300 s, and counts
# the start of the pod, too.
LIMIT = 240.0
# Seconds before LIMIT at which the test stops waiting for the run or for hosts, and names which.
SPARE = 10.0
# Seconds between two looks at the Job.
LOOK_EVERY = 1.0
REMEDY = "run `helm test` again when the run has ended (hvdchart status, or kubectl get jobs)"


def wait_for_end(api: Api, name: str, until: float) -> None:
    """Wait until the release's run has ended: the test needs the workers for itself.

    A run that is suspended, or whose Job is gone, uses no workers. Raises ApiError when the Job
    cannot be read, and RunError at `until`, by time.monotonic().
    """
    is_waiting = False
    while True:
        left = until - time.monotonic()
        # The API server may be away for longer than the test may take.
        if has_ended(api, name, max(0.0, left)):
            return
        if left < 0:
            raise RunError(f"the run has not ended within {LIMIT:.0f} s: {REMEDY}")
        if not is_waiting:
            log(f"waiting for the run to end: {name}")
            is_waiting = True
        time.sleep(LOOK_EVERY)


def bandwidth_run(run: Run) -> Run:
    """Return the run with the test's program, started by the run's own launcher where possible."""
    mode = {"elastic": "horovodrun", "custom": "mpirun"}.get(run.mode, run.mode)
    # Where the test runs without an elastic launcher, a host that may join would be a spare.
    hosts = [host for host in run.hosts if not (run.elastic and host.optional)]
    args = ["python3", str(PROGRAMS / "rank" / "check.py"), "bandwidth"]
    return replace(run, mode=mode, hosts=hosts, args=args)


def test(api: Api, run: Run, until: float) -> RunError | None:
    """Measure, and leave as many workers as there were. Raises RunError or ApiError."""
    signal.signal(signal.SIGTERM, _end_early)
    wait_for_end(api, os.environ[contract.TESTED_JOB], until)
    hurried = replace(run, hosts_timeout=min(run.hosts_timeout, until - time.monotonic()))
    facts = Facts(hurried, *describe_self(), is_test=True)
    # The events are the run's.
    master = Master(facts, api, EventRecorder(None))
    end_on(master, signal.SIGTERM, Terminated())
    timer = threading.Timer(until + SPARE - time.monotonic(), master.tell, [Terminated()])
    timer.daemon = True
    timer.start()
    try:
        return master.run()
    except Exception:
        master.effects.give_up(master.state)
        raise
    finally:
        timer.cancel()


def _end_early(*_: object) -> None:
    raise RunError("terminated before the test began")


def main() -> int:
    """Test, and leave as many workers as there were."""
    began = time.monotonic()
    run = bandwidth_run(parse_run(os.environ[contract.RUN]))
    try:
        problem = test(Api(), run, began + LIMIT - SPARE)
    except (RunError, ApiError) as error:
        problem = error if isinstance(error, RunError) else RunError(str(error))
    if problem and time.monotonic() - began >= LIMIT:
        problem = RunError(f"the test did not end within {LIMIT:.0f} s: {REMEDY}")
    code = report_failure(problem) if problem else 0
    log("the test passed" if code == 0 else f"the test failed with exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
