"""Reports the exception that ends a rank to the master.

The launcher names the rank that ended first. That rank may only have lost its peer: the rank that
raised the exception does not end before Horovod has shut down on all ranks. And the launcher's
output does not name the rank that wrote a line.
"""

from __future__ import annotations

import contextlib
import socket
import traceback
from collections.abc import Mapping

from hvd_pods.pod import notices
from hvd_pods.pod.tracebacks import MAX_EXCEPTION_CHARACTERS, TracebackReader
from hvd_pods.shared import notice_kinds
from hvd_pods.shared.contract import FENCE


def describe(error: BaseException) -> str:
    """Return the exception's line and its origin, as master/failure.py finds both in a log."""
    reader = TracebackReader()
    reader.take("Traceback (most recent call last)")
    parts = traceback.format_exception(type(error), error, error.__traceback__, chain=False)
    for line in "".join(parts).splitlines():
        text = reader.take(line)
        if text:
            return text
    # The reader does not support every form, such as an exception group.
    first = traceback.format_exception_only(type(error), error)[0]
    return first[:MAX_EXCEPTION_CHARACTERS].strip()


def notify(variables: Mapping[str, str], rank: int, error: BaseException) -> None:
    """Report the exception of a rank with these environment variables to its master.

    If the variables name no master, send nothing. Ignore a failure: it must not change how the rank
    ends.
    """
    address = variables.get(notices.ADDRESS)
    if address:
        with contextlib.suppress(Exception):
            fence = variables.get(FENCE, "")
            worker = socket.gethostname()
            text = describe(error)
            notices.send(
                address, fence, kind=notice_kinds.RAISED, worker=worker, rank=rank, text=text
            )
