"""Follows the progress that ranks report, over an SSH session with one worker at a time.

All ranks make the same steps, so the files of one worker are enough; the session runs
worker/report_progress.py. Nothing here can fail the run: what is not understood is left out, and a
session that ends is started again on the next host.
"""

from __future__ import annotations

import subprocess
import threading
import time
from typing import Sequence

from hvd_pods.cluster.spawn import spawn
from hvd_pods.common.metrics import parse_progress, select_progress
from hvd_pods.common.run import Host
from hvd_pods.master import remote
from hvd_pods.rules.messages import ProgressReported, Tell

# Seconds before the first look: ranks import for seconds.
FIRST_LOOK = 2.0
# Seconds until a session that ended is started again.
AGAIN_AFTER = 5.0
# Seconds in which the worker has to tell the last step, at the end of the training.
LAST_WITHIN = 2.0
# Bytes of a line.
LONGEST_LINE = 4096


class ProgressFollower:
    """Tells what the ranks of an attempt report, until `close`. Made just before they start."""

    def __init__(self, hosts: Sequence[Host], tell: Tell, attempt: int) -> None:
        # Replaced when hosts join or leave an elastic run.
        self.hosts = hosts
        self._tell = tell
        self._attempt = attempt
        self._began = time.monotonic()
        self._process: subprocess.Popen[str] | None = None
        self._closed = threading.Event()
        self._guard = threading.Lock()
        self._thread = spawn("follow-progress", self._follow)

    def close(self, *, wait_for_last_step: bool) -> None:
        """End the session; with `wait_for_last_step`, wait a moment for the last step."""
        self._closed.set()
        with self._guard:
            process = self._process
        if process is None:
            return
        assert process.stdin  # noqa: S101
        if wait_for_last_step:
            process.stdin.close()
            self._thread.join(LAST_WITHIN)
        process.kill()

    def _follow(self) -> None:
        number = 0
        pause = FIRST_LOOK
        while not self._closed.wait(pause):
            self._follow_host(self.hosts[number % len(self.hosts)])
            number = number + 1
            pause = AGAIN_AFTER

    def _follow_host(self, host: Host) -> None:
        with self._guard:
            if self._closed.is_set():
                return
            # How long ago, because the clocks of two nodes differ.
            began = f"{time.monotonic() - self._began:.3f}"
            try:
                self._process = subprocess.Popen(
                    remote.command_line(host, "worker/report_progress.py", began),
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
                reported = parse_progress(select_progress(line.replace("\t", "\n")))
                if reported:
                    self._tell(ProgressReported(self._attempt, reported))
        self._process.wait()
