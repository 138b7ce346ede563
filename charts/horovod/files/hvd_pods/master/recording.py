"""Records the events of a run as JSON lines, with what the master decided at each.

The first line is the run. docs/inside.md says how to read them.
"""

from __future__ import annotations

import json
import os
import queue
from contextlib import suppress
from pathlib import Path
from typing import Sequence, TextIO, Tuple

from hvd_pods.cluster.spawn import spawn
from hvd_pods.common.reporting import log
from hvd_pods.rules.messages import Effect, Event, Moment
from hvd_pods.rules.state import Phase

# Bytes after which nothing more is recorded: the file is in memory. Characters of an event and of
# an effect: those of a thousand hosts are long.
LONGEST, LONGEST_TEXT = 4 << 20, 1000
# Events that may wait to be written, and seconds that the end of the master waits for them.
MOST_WAITING, CLOSE_WITHIN = 10_000, 2.0

Decision = Tuple[Moment, Event, Phase, Sequence[Effect]]


class Recorder:
    """Records the events of a run, which `run` describes as HVD_RUN, in a thread of its own.

    The file may be on a volume that hangs, and bookkeeping never delays or ends a training. Where
    the file is too slow, the recording ends: with a gap it would mislead.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._waiting: queue.Queue[Decision | None] = queue.Queue(MOST_WAITING)
        self._is_open = True
        self._thread = spawn("record-events", self._follow)

    def put(self, moment: Moment, event: Event, phase: Phase, effects: Sequence[Effect]) -> None:
        """Record an event, the phase after it and what follows, unless the recording has ended."""
        try:
            if self._is_open:
                self._waiting.put_nowait((moment, event, phase, effects))
        except queue.Full:
            self._is_open = False

    def close(self) -> None:
        """Wait until the events are in the file, though not long."""
        self._is_open = False
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(CLOSE_WITHIN)

    def _follow(self) -> None:
        try:
            # A rank may have put a link there, where the volume is the ranks', too.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                self._write(file)
        except Exception as problem:  # noqa: BLE001 - whatever a file brings about
            log(f"cannot record the events of this run: {problem}")
        self._is_open = False

    def _write(self, file: TextIO) -> None:
        line, written = self._run, 0
        while written + len(line) < LONGEST:
            file.write(line + "\n")
            # What a master that is killed has seen so far is of use.
            file.flush()
            written += len(line) + 1
            try:
                item = self._waiting.get(block=self._is_open)
            except queue.Empty:
                return
            if item is None:
                return
            moment, event, phase, effects = item
            told, *followed = (repr(one)[:LONGEST_TEXT] for one in (event, *effects))
            line = json.dumps(
                {
                    **{"at": list(moment), "event": type(event).__name__, "told": told},
                    **{"waits": phase.value, "effects": followed},
                }
            )
