"""Forwards the launcher's error output, and searches it for the cause of a failure.

TensorFlow's notes on how it computes are not forwarded: no variable keeps TensorFlow 2.21 from
writing these, and each rank writes them.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from typing import IO, Callable, Sequence

from hvd_pods.master import failure
from hvd_pods.master.failure import Evidence, OutputLine
from hvd_pods.pod import streams
from hvd_pods.pod.threads import start_thread
from hvd_pods.pod.tracebacks import TracebackReader
from hvd_pods.rules.events import Cause, Notice
from hvd_pods.shared.launcher_output import OPEN_MPI_NOTES, TENSORFLOW_NOTES, split_tag
from hvd_pods.shared.run import Worker
from hvd_pods.shared.untrusted import one_line

# Search the cause in this many last lines, printed within this many seconds before the launcher's
# end: earlier tracebacks may be of errors that the script has handled.
LAST_LINES = 400
LAST_LINES_SECONDS = 15.0
# Seconds to wait for output of processes that outlive the launcher.
LAUNCHER_OUTPUT_DRAIN_TIMEOUT_SECONDS = 2.0
# The notes, with a launcher's tag before them. C++ writes a line in one piece.
LAUNCHER_NOTES = re.compile(
    r"^(?:\[[^]\n]*\](?:<stderr>:)? ?)?"
    rf"(?:(?:WARNING: |I0000 \S+ +\d+ \S+\] )(?:{TENSORFLOW_NOTES})|{OPEN_MPI_NOTES})"
    r"[^\n]*\n".encode(),
    re.M,
)
# Read at most this many bytes of a line. A progress bar, for instance, has no newline.
MAX_ERROR_LINE_BYTES = 4096
# Ranks whose tracebacks are read at a time.
MAX_TRACEBACK_READERS = 20_000
# The maximum length of an exception with its place and remedy, in characters.
MAX_RAISED_CHARACTERS = 800


class ErrorOutput:
    """Forwards and keeps a launcher's error output; calls `follow` with each line of ranks."""

    def __init__(
        self, source: IO[bytes], target: int, follow: Callable[[str], None] = lambda line: None
    ) -> None:
        self._source = source
        self._target = target
        self._follow = follow
        self._lines: deque[OutputLine] = deque(maxlen=LAST_LINES)
        self._tracebacks: deque[OutputLine] = deque(maxlen=LAST_LINES)
        # By rank; None is for all ranks whose lines have no tag.
        self._readers: dict[int | None, TracebackReader] = {}
        self._thread = start_thread("read-launcher", self._pass_on)

    def find_cause(
        self,
        workers: Sequence[Worker],
        code: int,
        exception_notices: Sequence[Notice] = (),
        exit_notices: Sequence[Notice] = (),
    ) -> Cause | None:
        """Return why the launcher ended with `code`; None if the cause is unknown.

        `exception_notices`: those of ranks about exceptions (rank/exception_notice.py).
        `exit_notices`: those about their exit codes and signals (rank/rank_end.py).
        """
        self._thread.join(LAUNCHER_OUTPUT_DRAIN_TIMEOUT_SECONDS)
        since = time.monotonic() - LAST_LINES_SECONDS
        # Copies, because processes that outlive the launcher may still write.
        return failure.find_cause(
            Evidence(
                workers=workers,
                exit_code=code,
                since=since,
                lines=[line for line in self._lines.copy() if line.at > since],
                exceptions=[line for line in self._tracebacks.copy() if line.at > since],
                exception_notices=exception_notices,
                exit_notices=exit_notices,
            )
        )

    def _pass_on(self) -> None:
        rest = b""
        while True:
            chunk = os.read(self._source.fileno(), 1 << 16)
            if not chunk:
                return
            streams.write(self._target, LAUNCHER_NOTES.sub(b"", chunk))
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-MAX_ERROR_LINE_BYTES:]
            for line in lines:
                if not LAUNCHER_NOTES.match(line + b"\n"):
                    shown = line[:MAX_ERROR_LINE_BYTES].decode(errors="replace")
                    self._look_at(shown.rstrip("\r"))

    def _look_at(self, line: str) -> None:
        now = time.monotonic()
        rank, text = split_tag(line)
        self._lines.append(OutputLine(now, rank, text))
        self._follow(text)
        if len(self._readers) > MAX_TRACEBACK_READERS:
            # The script prints tags of ranks that do not exist.
            self._readers.clear()
        raised = self._readers.setdefault(rank, TracebackReader()).take(text)
        if raised:
            self._tracebacks.append(OutputLine(now, rank, one_line(raised, MAX_RAISED_CHARACTERS)))
