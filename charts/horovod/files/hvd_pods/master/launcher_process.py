"""The launcher's process."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Mapping, Sequence

from hvd_pods.master.error_output import ErrorOutput
from hvd_pods.master.stall_reader import StallReader
from hvd_pods.pod.processes import all_processes
from hvd_pods.pod.reporting import log
from hvd_pods.pod.threads import start_thread
from hvd_pods.rules.events import EventSink, LauncherEnded, RankMissing
from hvd_pods.shared.errors import ConfigurationError
from hvd_pods.shared.pipes import pipe_of


class LauncherProcess:
    """A running launcher; its end and its output about stalled ranks become events.

    `errors` may find why it ended. Raises ConfigurationError when the program cannot be started.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        put: EventSink,
        attempt: int,
    ) -> None:
        log(f"$ {shlex.join(arguments)}")
        self._put = put
        self._attempt = attempt
        self._began = time.monotonic()
        # A launcher starts the ranks in its own working directory.
        try:
            self._process = subprocess.Popen(
                list(arguments),
                env=dict(environment),
                cwd=directory,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            message = _explain_start(arguments[0], environment["PATH"], directory, error)
            raise ConfigurationError(message) from error
        self._stalls = StallReader(time.monotonic)
        self.errors = ErrorOutput(pipe_of(self._process.stderr), 2, self._read)
        start_thread("wait-for-launcher", self._wait)

    def send(self, number: int) -> None:
        """Send it a signal. On SIGUSR1, direct.py detaches from the running ranks and exits."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _read(self, line: str) -> None:
        missing = self._stalls.read(line)
        if missing:
            self._put(RankMissing(self._attempt, *missing))

    def _wait(self) -> None:
        code = self._process.wait()
        # Clients of the gateway, or what a script has left, would run beside the next attempt.
        for process in all_processes():
            if process.session == self._process.pid:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)
        seconds = time.monotonic() - self._began
        self._put(LauncherEnded(self._attempt, 128 - code if code < 0 else code, seconds))


def _explain_start(program: str, path: str, directory: Path, error: OSError) -> str:
    """Return why the operating system did not start a program, and what to do about it."""
    if not directory.is_dir():
        return f"cannot start {program}: there is no folder {directory}"
    # The error may be that of a folder on PATH which the user may not read.
    if "/" not in program and shutil.which(program, path=path) is None:
        return f"the image has no {program} on PATH ({path})"
    remedies = {
        errno.ENOENT: "the file or the program after its #! is missing",
        errno.EACCES: f"make it executable: chmod +x {program}",
        errno.ENOEXEC: "its first line must name a program, such as #!/bin/sh",
    }
    remedy = remedies.get(error.errno or 0, "")
    return f"cannot start {program}: {error.strerror}" + (f"; {remedy}" if remedy else "")
