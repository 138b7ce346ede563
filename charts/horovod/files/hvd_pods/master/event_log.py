"""The event log: the events of a run as JSON lines, to be replayed to see what the master did.

    python charts/horovod/files/hvd_pods/master/event_log.py events.jsonl

prints each event, what changed in the state, and the effects. The first line is the run.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Iterator, TextIO

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.pod.reporting import log
from hvd_pods.pod.threads import start_thread
from hvd_pods.rules import events
from hvd_pods.rules.decide import decide
from hvd_pods.rules.effects import Effect
from hvd_pods.rules.events import Cause, Event, Moment, RecordPurpose
from hvd_pods.rules.job_state import JobKind, JobReading
from hvd_pods.rules.retries import Retries
from hvd_pods.rules.run_state import Activity, Assignment, RunState
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared import errors
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.run import Pod, parse_run

# Stop writing after this many bytes: the file is in memory.
MAX_LOG_BYTES = 4 << 20
# The maximum number of queued events, and seconds that the master waits for them when it ends.
MAX_QUEUED_EVENTS = 10_000
EVENT_LOG_CLOSE_TIMEOUT_SECONDS = 2.0
TUPLES = {"Pod": Pod, "Cause": Cause, "NoAnswer": NoAnswer, "JobReading": JobReading}
ENUMS = {"TimerKind": TimerKind, "JobKind": JobKind, "RecordPurpose": RecordPurpose}
# Fields of the first line in addition to the run.
ASSIGNMENT_FIELDS = ("holder", "job", "uid")


def encode(value: Any) -> Any:
    """Return an event's field as a JSON value."""
    if isinstance(value, errors.RunError):
        return {"error": type(value).__name__, "message": str(value)}
    if type(value).__name__ in TUPLES and isinstance(value, tuple):
        return {"tuple": type(value).__name__, "fields": [*map(encode, value)]}
    if isinstance(value, Enum):
        return {"enum": type(value).__name__, "value": value.value}
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return [encode(item) for item in value] if isinstance(value, (list, tuple)) else value


def decode(value: Any) -> Any:
    """Undo `encode`."""
    if isinstance(value, dict) and "error" in value:
        return getattr(errors, value["error"])(value["message"])
    if isinstance(value, dict) and "tuple" in value:
        return TUPLES[value["tuple"]](*map(decode, value["fields"]))
    if isinstance(value, dict) and "enum" in value:
        return ENUMS[value["enum"]](value["value"])
    if isinstance(value, dict):
        return {key: decode(item) for key, item in value.items()}
    return [decode(item) for item in value] if isinstance(value, list) else value


class EventLog:
    """Writes the events of a run, which `run` describes as HVD_RUN, in a thread of its own.

    The file may be on a volume that hangs, and bookkeeping never delays or ends a training. If the
    file is too slow, the event log ends: a log with a gap would mislead.
    """

    def __init__(
        self,
        path: Path,
        assignment: Assignment,
        run: str,
        *,
        max_bytes: int = MAX_LOG_BYTES,
        max_queued_events: int = MAX_QUEUED_EVENTS,
        close_timeout_seconds: float = EVENT_LOG_CLOSE_TIMEOUT_SECONDS,
    ) -> None:
        self._max_bytes = max_bytes
        self._close_timeout_seconds = close_timeout_seconds
        self._path = path
        self._assignment = assignment
        self._run = run
        self._waiting: queue.Queue[tuple[Moment, Event] | None] = queue.Queue(max_queued_events)
        self._is_open = True
        self._thread = start_thread("write-events", self._follow)

    def put(self, moment: Moment, event: Event) -> None:
        """Write an event soon, unless the event log has ended."""
        try:
            if self._is_open:
                self._waiting.put_nowait((moment, event))
        except queue.Full:
            self._is_open = False

    def close(self) -> None:
        """Wait a short time until the events are in the file."""
        self._is_open = False
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(self._close_timeout_seconds)

    def _follow(self) -> None:
        try:
            # Follow no link: if ranks share the volume, a rank may have created one.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                self._write(file)
        except Exception as problem:  # noqa: BLE001 - whatever a file or an event brings about
            log(f"cannot write the event log of this run: {problem}")
        self._is_open = False

    def _write(self, file: TextIO) -> None:
        assignment = {name: getattr(self._assignment, name) for name in ASSIGNMENT_FIELDS}
        line = json.dumps({"run": self._run, **assignment})
        written = 0
        while written + len(line) < self._max_bytes:
            file.write(line + "\n")
            # Flush each line: the log of a killed master is useful, too.
            file.flush()
            written += len(line) + 1
            try:
                item = self._waiting.get(block=self._is_open)
            except queue.Empty:
                return
            if item is None:
                return
            moment, event = item
            fields = {
                field.name: encode(getattr(event, field.name))
                for field in dataclasses.fields(event)
            }
            line = json.dumps({"at": list(moment), "event": type(event).__name__, **fields})


def read(lines: Iterator[str]) -> tuple[RunState, Iterator[tuple[Moment, Event]]]:
    """Parse an event log; return the state before the first event, and the events."""
    head = json.loads(next(lines))
    run = parse_run(head.pop("run"))
    state = RunState(
        Assignment(run, **head), retries=Retries(None if run.has_api_access else run.backoff_limit)
    )
    return state, map(_parse, lines)


def _parse(line: str) -> tuple[Moment, Event]:
    document = json.loads(line)
    at = document.pop("at")
    kind = getattr(events, document.pop("event"))
    return Moment(*at), kind(**{name: decode(value) for name, value in document.items()})


def replay(lines: Iterator[str]) -> Iterator[tuple[Moment, Event, RunState, tuple[Effect, ...]]]:
    """Decide about the events again; yield each with the state after it, and its effects."""
    state, recorded = read(lines)
    for moment, event in recorded:
        state, following = decide(state, event, moment)
        yield moment, event, state, following


def main() -> int:
    began = 0.0
    activity = Activity.WAITING_FOR_RECORD
    with Path(sys.argv[1]).open(encoding="utf-8") as lines:
        for moment, event, state, following in replay(lines):
            began = began or moment.now
            print(f"+{moment.now - began:8.3f}  {event}"[:300])
            if state.activity != activity:
                activity = state.activity
                print(f"{'':11}waits {activity.value}")
            for effect in following:
                print(f"{'':11}-> {effect}"[:300])
    return 0


if __name__ == "__main__":
    sys.exit(main())
