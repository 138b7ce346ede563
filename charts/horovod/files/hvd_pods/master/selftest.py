"""`helm test`: after the run, an allreduce over all its ranks and the bandwidth that it reached.

The test is a short run. It holds the release's record, so it never runs beside another run, and it
follows the rules of any run. Its effects differ: it writes no data of its own to the record,
creates no events, makes no second attempt, and leaves as many workers as it found. It ends by
itself before Helm stops waiting for it.

While the workers exist, it reports whether the release's NetworkPolicy is enforced. Only a pod that
the policy does not admit can detect that, so this pod removes its label for a moment.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Callable, NamedTuple

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.cluster import statefulsets
from hvd_pods.cluster.job_events import JobEvents
from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.master.cluster_effects import ClusterEffects
from hvd_pods.master.main import Master, describe_self, end_on
from hvd_pods.master.record_io import RecordClient, has_ended
from hvd_pods.master.run_effects import EffectRunner
from hvd_pods.pod.reporting import log, report_failure
from hvd_pods.protocol.banner import BANNER_MARK
from hvd_pods.rules.effects import (
    FollowProgress,
    Prepare,
    ReadJob,
    ReadRecord,
    ReleaseRecord,
    ReportFailure,
    ScaleDown,
    StopProgress,
    WriteRecord,
)
from hvd_pods.rules.events import (
    EndReached,
    Event,
    EventSink,
    JobRead,
    RecordChanged,
    RecordPurpose,
    RecordRead,
    RecordWritten,
    Terminated,
    WorkersScaled,
)
from hvd_pods.rules.job_state import read_found_job
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared import contract
from hvd_pods.shared.errors import InterruptedRunError, RunError
from hvd_pods.shared.network_policies import UNENFORCED
from hvd_pods.shared.paths import PROGRAMS
from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.run import Run, parse_run

RUN_NOT_ENDED_REMEDY = (
    "run `helm test` again when the run has ended (hvdchart status, or kubectl get jobs)"
)
# What the test says of the NetworkPolicy, unless nothing enforces it.
ENFORCED = "the NetworkPolicy is enforced: a pod that it does not admit reaches no worker"
UNKNOWN = "whether the NetworkPolicy is enforced is not known"
# A substitute for the Job, which the test does not have: no attempt follows, and no worker is
# needed then.
_LAST_ATTEMPT = read_found_job({"metadata": {}, "spec": {"suspend": True}})
# Seconds that ranks have to end when the test is stopped: they have nothing to save.
SELFTEST_GRACE_PERIOD_SECONDS = 10.0
# Timeout in seconds for a connection.
CONNECT_TIMEOUT_SECONDS = 2.0
# This many failed connections in a row do not happen by chance.
FAILURES_IN_A_ROW = 3


class Timing(NamedTuple):
    """How long the test waits, in seconds."""

    # Until the test ends, whatever it waits for. Helm's default timeout is 300 s, and includes the
    # start of the pod.
    limit_seconds: float = 240.0
    # Before that limit, when the test stops waiting for the run or for workers, and names which.
    spare_seconds: float = 10.0
    # Between two reads of the Job, and between two connections.
    poll_interval_seconds: float = 1.0
    # Until the network has applied a changed label.
    settle_timeout_seconds: float = 15.0


TIMING = Timing()


class SelftestRecordClient(RecordClient):
    """The record of a release, to which the test writes only its lock.

    `before_release` is called before the record is released: the next holder decides about the
    workers.
    """

    def __init__(
        self, api: Api, assignment: Assignment, before_release: Callable[[], None]
    ) -> None:
        super().__init__(api, assignment)
        self._before_release = before_release

    def read(self, effect: ReadRecord) -> Event:
        """Read who holds the record."""
        return _about_hold(super().read(effect))

    def write(self, effect: WriteRecord) -> Event:
        """Take the record or renew the lock; nothing else is written."""
        if effect.purpose == RecordPurpose.RENEW:
            effect = replace(effect, data={})
        elif effect.purpose != RecordPurpose.TAKE:
            return RecordWritten(effect.purpose)
        return _about_hold(super().write(effect))

    def release(self, effect: ReleaseRecord) -> Event:
        """Release the record as it was."""
        self._before_release()
        return super().release(replace(effect, data={}))


class SelftestClusterEffects(ClusterEffects):
    """The cluster: the test changes only the number of workers, and only while it runs."""

    def __init__(self, api: Api, assignment: Assignment) -> None:
        super().__init__(api, assignment)
        # Workers that the test has scaled up, and their numbers before; None before it begins.
        self._provided: dict[str, int] | None = None

    def restore(self) -> None:
        """Scale to the numbers before the test, unless an upgrade needs the workers by now."""
        before = self._provided
        self._provided = {}
        try:
            if before and has_ended(self._api, os.environ[contract.TESTED_JOB]):
                statefulsets.scale(self._api, before)
        except ApiError as problem:
            # An upgrade allows the release's master to read the new Job only.
            log(f"the number of workers stays as it is: {problem}")

    def read_job(self, effect: ReadJob) -> Event:
        """Provide the workers that the test needs; there is no Job to read."""
        if self._provided is None:
            self._provided = {}
            try:
                statefulsets.provide(self._api, self._run.needed_workers, self._provided)
            except ApiError as problem:
                return EndReached(RunError(str(problem)))
        return JobRead(_LAST_ATTEMPT, effect.is_for_orphans)

    def scale_down(self, effect: ScaleDown) -> Event:
        """Leave the workers until the record is released."""
        return WorkersScaled()


class SelftestEffectRunner(EffectRunner):
    """The effects of a run that leaves no trace in the release."""

    def __init__(
        self,
        assignment: Assignment,
        api: Api,
        put: EventSink,
        record: RecordClient,
        cluster: ClusterEffects,
        timing: Timing,
    ) -> None:
        # The events are the run's.
        super().__init__(assignment, api, JobEvents(None), put, record, cluster)
        self._timing = timing

    def prepare(self, effect: Prepare) -> None:
        """Prepare the launcher; the number of workers stays."""
        super().prepare(replace(effect, scales_workers=False))

    def report_failure(self, effect: ReportFailure) -> None:
        """Report nothing: `main` reports how the test has ended."""

    def follow_progress(self, effect: FollowProgress) -> None:
        """Follow nothing: the test's program reports no progress."""

    def stop_progress(self, effect: StopProgress) -> Event:
        """Log whether the NetworkPolicy is enforced."""
        # The workers are there, and the record is still held.
        if self._api and os.environ.get(contract.POLICY) and self._access.addresses:
            log(self._probe_policy(self._api, next(iter(self._access.addresses.values()))))
        return super().stop_progress(effect)

    def _probe_policy(self, api: Api, worker: str) -> str:
        """Describe whether a pod that the NetworkPolicy does not admit reaches a worker's agent."""
        if not self._becomes(worker, is_open=True):
            return f"{UNKNOWN}: no worker answers"
        try:
            try:
                # The API server may have made a change whose response was lost.
                self._label(api, None)
                is_shut = self._becomes(worker, is_open=False)
            finally:
                self._label(api, "master")
        except ApiError as problem:
            return f"{UNKNOWN}: {problem}"
        if self._stopped.is_set():
            return f"{UNKNOWN}: the test is stopped"
        if not is_shut:
            return f"nothing enforces the NetworkPolicy of this release: {UNENFORCED}"
        # The worker itself may have ended.
        if not self._becomes(worker, is_open=True):
            return f"{UNKNOWN}: the worker no longer answers"
        return ENFORCED

    def _label(self, api: Api, component: str | None) -> None:
        # The NetworkPolicy admits a pod by this label (templates/network/networkpolicy.yaml).
        body = {"metadata": {"labels": {contract.COMPONENT_LABEL: component}}}
        settle_timeout_seconds = self._timing.settle_timeout_seconds
        api.merge_patch(
            f"core/pods/{self._assignment.holder}", body, retry_seconds=settle_timeout_seconds
        )

    def _becomes(self, address: str, *, is_open: bool) -> bool:
        """Return whether the agent becomes reachable, or unreachable, in time.

        A single connection may fail by chance. A series of failures that has begun is completed,
        even after that time.
        """
        needed = 1 if is_open else FAILURES_IN_A_ROW
        repeats = 0
        until = time.monotonic() + self._timing.settle_timeout_seconds
        while (repeats or time.monotonic() < until) and not self._stopped.is_set():
            repeats = repeats + 1 if self._reaches(address) == is_open else 0
            if repeats == needed:
                return True
            time.sleep(self._timing.poll_interval_seconds)
        return False

    def _reaches(self, address: str) -> bool:
        """Return whether the agent itself answers.

        The proxy of a service mesh accepts any connection.
        """
        expected = BANNER_MARK.encode()
        try:
            connection = socket.create_connection(
                (address, self._run.agent_port), CONNECT_TIMEOUT_SECONDS
            )
            with connection, connection.makefile("rb") as stream:
                return stream.read(len(expected)) == expected
        except OSError:
            return False


def _about_hold(event: Event) -> Event:
    """Return the event without the record's data about the release's own run."""
    if isinstance(event, (RecordRead, RecordChanged)):
        lock = {key: text for key, text in event.data.items() if key in RecordKey.LOCK_KEYS}
        return replace(event, data=lock)
    return event


def wait_for_end(api: Api, name: str, until: float, timing: Timing = TIMING) -> None:
    """Wait until the release's run has ended: the test needs the workers for itself.

    A run that is suspended, or whose Job is gone, uses no workers. Raises ApiError when the Job
    cannot be read, and RunError at `until`, by time.monotonic().
    """
    is_waiting = False
    while True:
        seconds_left = until - time.monotonic()
        # The API server may be away for longer than the test may take.
        if has_ended(api, name, max(0.0, seconds_left)):
            return
        if seconds_left < 0:
            raise RunError(
                f"the run has not ended within {timing.limit_seconds:.0f} s: {RUN_NOT_ENDED_REMEDY}"
            )
        if not is_waiting:
            log(f"waiting for the run to end: {name}")
            is_waiting = True
        time.sleep(timing.poll_interval_seconds)


def bandwidth_run(run: Run) -> Run:
    """Return the run with the test's program, started by the run's own launcher where possible."""
    mode = "mpirun" if run.mode == "custom" else run.mode
    args = ["python3", f"{PROGRAMS}/rank/allreduce_check.py", "bandwidth"]
    return replace(
        run,
        mode=mode,
        args=args,
        grace_seconds=SELFTEST_GRACE_PERIOD_SECONDS,
        fail_on_nan=False,
    )


def test(api: Api, run: Run, until: float, timing: Timing) -> RunError | None:
    """Measure, and leave as many workers as there were. Raises RunError or ApiError."""
    signal.signal(signal.SIGTERM, _end_early)
    wait_for_end(api, os.environ[contract.TESTED_JOB], until, timing)
    hurried = replace(
        run, workers_timeout_seconds=min(run.workers_timeout_seconds, until - time.monotonic())
    )
    assignment = Assignment(hurried, *describe_self())
    cluster = SelftestClusterEffects(api, assignment)
    record = SelftestRecordClient(api, assignment, cluster.restore)

    def make_effects(put: EventSink) -> EffectRunner:
        return SelftestEffectRunner(assignment, api, put, record, cluster, timing)

    master = Master(assignment, make_effects)
    end_on(master, signal.SIGTERM, Terminated())
    timer = threading.Timer(
        until + timing.spare_seconds - time.monotonic(), master.put, [Terminated()]
    )
    timer.daemon = True
    timer.start()
    try:
        problem = master.run()
    except Exception:
        master.effects.give_up(master.state)
        raise
    finally:
        timer.cancel()
        # Another master that has taken the record decides about the workers.
        if not master.state.record_lock.lost_to:
            cluster.restore()
    if isinstance(problem, InterruptedRunError):
        return InterruptedRunError("the test was terminated")
    return problem


def _end_early(*_: object) -> None:
    raise RunError("terminated before the test began")


def main(connect: Callable[[], Api] = Api, timing: Timing = TIMING) -> int:
    """Test, and leave as many workers as there were."""
    began = time.monotonic()
    run = bandwidth_run(parse_run(os.environ[contract.RUN]))
    try:
        problem = test(connect(), run, began + timing.limit_seconds - timing.spare_seconds, timing)
    except (RunError, ApiError) as error:
        problem = error if isinstance(error, RunError) else RunError(str(error))
    if problem and time.monotonic() - began >= timing.limit_seconds:
        problem = RunError(
            f"the test did not end within {timing.limit_seconds:.0f} s: {RUN_NOT_ENDED_REMEDY}"
        )
    code = report_failure(problem) if problem else 0
    log("the test passed" if code == 0 else f"the test failed with exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
