"""Records the events of a run as JSON lines, and replays them to see what the master did.

    python charts/horovod/files/hvd_pods/master/recording.py events.jsonl

prints each event, what changed in the state, and the effects. The first line is the run.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Iterator, TextIO

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common import errors
from hvd_pods.common.run import Pod, parse_run
from hvd_pods.master import messages
from hvd_pods.master.decide import decide
from hvd_pods.master.failure import Cause
from hvd_pods.master.messages import Effect, Event, Moment
from hvd_pods.master.retries import Retries
from hvd_pods.master.state import Facts, Phase, State

# Bytes after which nothing more is recorded: the file is in memory.
LONGEST = 4 << 20
TUPLES = {"Pod": Pod, "Cause": Cause}


def encode(value: Any) -> Any:
    """Return what JSON can hold of an event's field."""
    if isinstance(value, errors.RunError):
        kind = {"exit_code": value.exit_code, "repeats": getattr(value, "repeats", "")}
        return {"error": type(value).__name__, "message": str(value), **kind}
    if type(value).__name__ in TUPLES and isinstance(value, tuple):
        return {"tuple": type(value).__name__, "fields": list(value)}
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return [encode(item) for item in value] if isinstance(value, (list, tuple)) else value


def decode(value: Any) -> Any:
    """Undo `encode`."""
    if isinstance(value, dict) and "error" in value:
        kind = getattr(errors, value["error"])
        if issubclass(kind, errors.NotANumberError):
            return kind()
        if issubclass(kind, errors.LaunchError):
            return kind(value["message"], value["exit_code"], value["repeats"])
        return kind(value["message"])
    if isinstance(value, dict) and "tuple" in value:
        return TUPLES[value["tuple"]](*value["fields"])
    if isinstance(value, dict):
        return {key: decode(item) for key, item in value.items()}
    return [decode(item) for item in value] if isinstance(value, list) else value


def begin(path: Path, facts: Facts, run: str) -> TextIO:
    """Open a file for the events of a run, which `run` describes as HVD_RUN. Raises OSError."""
    file = path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)
    until = None if facts.until == float("inf") else facts.until
    own = {"holder": facts.holder, "job": facts.job, "uid": facts.uid, "until": until}
    file.write(json.dumps({"run": run, "is_test": facts.is_test, **own}) + "\n")
    return file


def write(file: TextIO | None, moment: Moment, event: Event) -> TextIO | None:
    """Record an event; the file, or None when nothing more can be recorded."""
    if file is None:
        return None
    fields = {f.name: encode(getattr(event, f.name)) for f in dataclasses.fields(event)}  # type: ignore[arg-type]
    line = json.dumps({"at": list(moment), "event": type(event).__name__, **fields})
    try:
        if file.tell() + len(line) < LONGEST:
            file.write(line + "\n")
            return file
        file.close()
    except (OSError, ValueError):
        # The memory of the pod is full. Bookkeeping never ends a training.
        return None
    return None


def read(lines: Iterator[str]) -> tuple[State, Iterator[tuple[Moment, Event]]]:
    """Parse a recording: the state before the first event, and the events."""
    head = json.loads(next(lines))
    run, until = parse_run(head["run"]), head["until"]
    own = (head["holder"], head["job"], head["uid"], head["is_test"])
    facts = Facts(run, *own, float("inf") if until is None else until)
    return State(facts, retries=Retries(None if run.api else run.retries)), map(_parse, lines)


def _parse(line: str) -> tuple[Moment, Event]:
    document = json.loads(line)
    at, kind = document.pop("at"), getattr(messages, document.pop("event"))
    return Moment(*at), kind(**{name: decode(value) for name, value in document.items()})


def replay(lines: Iterator[str]) -> Iterator[tuple[Moment, Event, State, tuple[Effect, ...]]]:
    """Decide about recorded events once more: each with the state after it, and its effects."""
    state, events = read(lines)
    for moment, event in events:
        state, effects = decide(state, event, moment)
        yield moment, event, state, effects


def main() -> int:
    """Print a recording."""
    began, phase = 0.0, Phase.HOLDING
    with Path(sys.argv[1]).open(encoding="utf-8") as lines:
        for moment, event, state, effects in replay(lines):
            began = began or moment.now
            print(f"+{moment.now - began:8.3f}  {event}"[:300])
            if state.phase != phase:
                phase = state.phase
                print(f"{'':11}waits {phase.value}")
            for effect in effects:
                print(f"{'':11}-> {effect}"[:300])
    return 0


if __name__ == "__main__":
    sys.exit(main())
