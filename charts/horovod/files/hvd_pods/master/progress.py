"""The progress that the script reports: from a rank's file to the run's record.

All ranks make the same steps, so the master follows the files of one worker, over an SSH session
that runs worker/report_progress.py. Nothing here can fail the run: what is not understood is left
out, and a session that ends is started again on the next host.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from datetime import datetime, timezone
from typing import Callable, Sequence

from hvd_pods.common.progress_samples import ReportedProgress, parse_progress, select_samples
from hvd_pods.common.run import Host
from hvd_pods.master import remote

# Seconds before the first look: ranks import for seconds.
FIRST_LOOK = 2.0
# Seconds until a session that ended is started again.
AGAIN_AFTER = 5.0
# Seconds in which the worker has to tell the last step, at the end of the training.
LAST_WITHIN = 2.0
# Steps that the speed is measured over, and bytes of a line.
WINDOW, LONGEST_LINE = 60, 4096


class Progress:
    """The progress of an attempt, as the record has it."""

    def __init__(self) -> None:
        # Called when the loss is not a number.
        self.on_nan: Callable[[], None] = lambda: None
        self._told: ReportedProgress = {}
        self._time = ""
        self._began = 0.0
        # When which step was seen.
        self._history: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._process: subprocess.Popen[str] | None = None
        self._closed = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def follow(self, hosts: Callable[[], Sequence[Host]]) -> None:
        """Follow the ranks of the first host, in a thread. Called just before they are started."""
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._follow, args=(hosts,), daemon=True)
        self._thread.start()

    def close(self, *, tells_last: bool) -> None:
        """End the session; with `tells_last`, wait a moment for the last step."""
        self._closed.set()
        with self._guard:
            process = self._process
        if process is None or self._thread is None:
            return
        assert process.stdin  # noqa: S101
        if tells_last:
            process.stdin.close()
            self._thread.join(LAST_WITHIN)
        process.kill()

    def entry(self) -> str:
        """The progress for the record, in JSON; empty while nothing was told."""
        with self._guard:
            if not self._told:
                return ""
            told, time_of_step = dict(self._told), self._time
            (began, first), (now, last) = self._history[0], self._history[-1]
        size = told.pop("size", 1)
        if "imagesPerSecond" in told:
            told["imagesPerSecond"] = round(told["imagesPerSecond"] * size, 3)
        left = told.get("steps", 0) - last
        if left >= 0 and last > first:
            told["secondsLeft"] = round(left * (now - began) / (last - first))
        return json.dumps({**told, "time": time_of_step}, separators=(",", ":"))

    def take(self, line: str, now: float) -> None:
        """Take what the worker told in a line, if it is that."""
        told = parse_progress(select_samples(line.replace("\t", "\n")))
        if not told:
            return
        step = told["step"]
        with self._guard:
            if self._history and step < self._history[-1][1]:
                # Ranks that were started again.
                self._history.clear()
            if not self._history or step > self._history[-1][1]:
                self._history.append((now, step))
                self._time = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._told = told
        if self.is_nan:
            self.on_nan()

    @property
    def is_nan(self) -> bool:
        """Whether the last loss that was told is not a number."""
        return self._told.get("loss") == "nan"

    @property
    def step(self) -> int:
        """The last step that was told; 0 when none was."""
        return int(self._told.get("step", 0))

    def _follow(self, hosts: Callable[[], Sequence[Host]]) -> None:
        number, pause = 0, FIRST_LOOK
        while not self._closed.wait(pause):
            present = hosts()
            if present:
                self._follow_host(present[number % len(present)])
            number, pause = number + 1, AGAIN_AFTER

    def _follow_host(self, host: Host) -> None:
        with self._guard:
            if self._closed.is_set():
                return
            try:
                self._process = subprocess.Popen(
                    # How long ago, because the clocks of two nodes differ.
                    remote.command_line(
                        host, "worker/report_progress.py", f"{time.monotonic() - self._began:.3f}"
                    ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    errors="replace",
                )
            except OSError:
                return
        assert self._process.stdout  # noqa: S101
        with self._process.stdout as output:
            for line in iter(lambda: output.readline(LONGEST_LINE), ""):
                self.take(line, time.monotonic())
        self._process.wait()
