"""The output of master and workers: lines of the log, and the termination message of the pod."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TextIO

from hvd_pods.shared.errors import InterruptedRunError, RunError
from hvd_pods.shared.exit_codes import LOST_MASTER
from hvd_pods.shared.untrusted import printable

TERMINATION_LOG = Path("/dev/termination-log")
MAX_TERMINATION_MESSAGE_BYTES = 4096

_START = time.monotonic()


def log(message: str) -> None:
    """Print one line; the prefix distinguishes it from the ranks' output."""
    _print(f"[hvd +{time.monotonic() - _START:.1f}s] {message}", sys.stdout)


def _print(text: str, file: TextIO) -> None:
    """Print any text. The encoding of the image's locale may not support all of it."""
    encoding = file.encoding or "utf-8"
    shown = printable(text).encode(encoding, "backslashreplace").decode(encoding)
    print(shown, file=file, flush=True)


def report_failure(error: RunError) -> int:
    """Write an error to the log and the pod's termination message, and return its exit code.

    The message is cut to the kubelet's limit. It is left out if it cannot be written.
    """
    text = printable(str(error))
    _print(f"[hvd] error: {text}", sys.stderr)
    try:
        # The kubelet would keep the end of a longer message.
        TERMINATION_LOG.write_bytes(f"{text}\n".encode()[:MAX_TERMINATION_MESSAGE_BYTES])
    except OSError as problem:
        # Outside a pod, or on a platform without the file. The log has the error.
        log(f"cannot write the termination message: {problem}")
    return error.exit_code


def report_end(problem: RunError | None) -> int:
    """Log the end, and return the master's exit code: the ranks' exit code if the Job may see it.

    `problem` is None for a run that has finished. A rank's exit code that would make the Job create
    another master becomes 1. The log's last line names the problem, for readers of only the end.
    """
    code = problem.exit_code if problem else 0
    if code in LOST_MASTER and not isinstance(problem, InterruptedRunError):
        code = 1
    if problem:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        log(f"ended at {now} with exit code {code}: {' '.join(str(problem).split())}")
    return code
