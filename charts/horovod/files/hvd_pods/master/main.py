"""The master's main program: one loop that takes events, decides, and carries out the effects."""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.cluster.job_events import EVENTS_CLOSE_TIMEOUT_SECONDS, JobEvents
from hvd_pods.cluster.kube import Api
from hvd_pods.master import launcher_memory, serve_metrics
from hvd_pods.master.event_log import EventLog
from hvd_pods.master.run_effects import EffectRunner
from hvd_pods.pod import metrics
from hvd_pods.pod.reporting import log, report_end
from hvd_pods.rules.decide import decide
from hvd_pods.rules.events import (
    Event,
    EventSink,
    InternalError,
    Moment,
    Started,
    Terminated,
    Timer,
)
from hvd_pods.rules.retries import Retries
from hvd_pods.rules.run_state import Assignment, RunState
from hvd_pods.shared import contract
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.exit_codes import INTERNAL_ERROR
from hvd_pods.shared.paths import GENERATED
from hvd_pods.shared.run import parse_run

# Port on the pod's loopback interface -> path of the request to end: Istio's proxy and Linkerd's.
PROXIES = {15020: "/quitquitquit", 4191: "/shutdown"}
# Seconds by which events that are already on the queue may delay a timer.
MAX_TIMER_DELAY_SECONDS = 1.0


class Master:
    """The loop, its queue and its state.

    `make_effects` creates the object that carries out effects; its argument is the function that
    puts events on the queue.
    """

    def __init__(
        self, assignment: Assignment, make_effects: Callable[[EventSink], EffectRunner]
    ) -> None:
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        limit = None if assignment.run.has_api_access else assignment.run.backoff_limit
        self.state = RunState(assignment, retries=Retries(limit))
        self.effects = make_effects(self._queue.put)
        path = Path(os.environ.get(contract.EVENTS_FILE) or f"{GENERATED}/events.jsonl")
        self._event_log = EventLog(path, assignment, os.environ[contract.RUN])
        # A thread that fails must end the master: without the thread that probes the workers, for
        # instance, it would notice no loss.
        threading.excepthook = self._put_defect

    def put(self, event: Event) -> None:
        """Put an event on the queue. Any thread and any signal handler may call this."""
        self._queue.put(event)

    def _put_defect(self, failed: threading.ExceptHookArgs) -> None:
        text = traceback.format_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
        self.put(InternalError("".join(text)))

    def run(self) -> RunError | None:
        """Run to the end; None when the training has finished. Raises RuntimeError."""
        self.put(Started())
        try:
            while self.effects.exit is None:
                self._decide(self._next())
            return self.effects.exit.problem
        finally:
            self._event_log.close()

    def _decide(self, event: Event) -> None:
        if isinstance(event, InternalError):
            raise RuntimeError(event.traceback)  # noqa: TRY004 - no wrong type
        moment = Moment(time.monotonic(), time.time())
        self._event_log.put(moment, event)
        self.state, following = decide(self.state, event, moment)
        for effect in following:
            self.effects.carry_out(effect)

    def _next(self) -> Event:
        """Return the next event, from the queue or of the first timer."""
        timers = self.state.timers
        if not timers:
            return self._queue.get()
        kind = min(timers, key=lambda kind: timers[kind])
        seconds_left = timers[kind] - time.monotonic()
        if seconds_left < -MAX_TIMER_DELAY_SECONDS:
            return Timer(kind)
        try:
            return (
                self._queue.get(timeout=seconds_left)
                if seconds_left > 0
                else self._queue.get_nowait()
            )
        except queue.Empty:
            return Timer(kind)


def describe_self() -> tuple[str, str, str]:
    """Return the names of this pod and of its Job, and the Job's UID; empty in a test."""
    return socket.gethostname(), os.environ[contract.JOB], os.environ[contract.JOB_UID]


def end_on(master: Master, number: int, event: Event) -> None:
    """Put an event on the queue when a signal arrives."""
    signal.signal(number, lambda *_: master.put(event))


def end_proxy() -> None:
    """Ask each proxy in this pod to end, if the chart says that the pod waits for one."""
    for port, path in PROXIES.items() if os.environ.get(contract.MESH) == "Hold" else ():
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("POST", path)
            status = connection.getresponse().status
        except (OSError, HTTPException):
            # This pod has no proxy of that mesh.
            continue
        finally:
            connection.close()
        log(f"asked the mesh's proxy to end (POST {path}): it answered {status}")


def main(
    connect: Callable[[], Api] = Api, events_timeout_seconds: float = EVENTS_CLOSE_TIMEOUT_SECONDS
) -> int:
    """Run; the Job decides by the exit code whether to create another master.

    `events_timeout_seconds` is the number of seconds to wait for the last events at the end.
    """
    run = parse_run(os.environ[contract.RUN])
    # Raise the limit before the workers are probed: each has a connection.
    launcher_memory.raise_file_limit(len(run.workers))
    api = connect() if run.has_api_access else None
    job_events = JobEvents(api, events_timeout_seconds)
    assignment = Assignment(run, *describe_self())
    master = Master(assignment, lambda put: EffectRunner(assignment, api, job_events, put))
    end_on(master, signal.SIGTERM, Terminated())
    metrics.start(lambda: serve_metrics.make_page(master.state))
    try:
        problem = master.run()
    except Exception:  # noqa: BLE001 - the Job makes another master, which may come further
        traceback.print_exc()
        with suppress(Exception):
            master.effects.give_up(master.state)
        return INTERNAL_ERROR
    finally:
        job_events.close()
    end_proxy()
    return report_end(problem)


if __name__ == "__main__":
    sys.exit(main())
