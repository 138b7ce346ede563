"""What a rank tells the master of the exception that ends it.

The launcher names the rank that ended first. That may be one which lost its peer: the rank that
raised the exception ends only when Horovod has shut down on all of them. And the launcher's output
does not say which rank wrote what.
"""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections.abc import Mapping

from hvd_pods.common import hints, notices
from hvd_pods.common.fence import EPOCH

# The longest line of an exception, counted in characters, so that the notice fits the limit.
LONGEST = 500


def describe(error: BaseException) -> str:
    """The exception's line, and where it was raised; as master/failure.py finds both in a log."""
    lines = traceback.format_exception_only(type(error), error)
    # A SyntaxError has lines of the script before its last line, and notes may follow.
    last = next(line for line in lines if not line.startswith(" "))
    frames = traceback.extract_tb(error.__traceback__)
    file, line = (frames[-1].filename, frames[-1].lineno) if frames else ("", None)
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    place = f", {os.path.basename(file)}:{line}" if file else ""
    text = last.splitlines()[0][:LONGEST]
    return text + place + hints.find(text, frames[-1].line or "" if frames else "")


def notify(variables: Mapping[str, str], rank: int, error: BaseException) -> None:
    """Tell the master of a rank with these environment variables."""
    address = variables.get(notices.ADDRESS)
    if address:
        # A failure here must not change how the rank ends.
        with contextlib.suppress(Exception):
            epoch, host, text = variables.get(EPOCH, ""), socket.gethostname(), describe(error)
            notices.send(address, epoch, kind=notices.RAISED, host=host, rank=rank, text=text)
