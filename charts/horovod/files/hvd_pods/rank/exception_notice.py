"""What a rank reports to the master of the exception that ends it.

The launcher names the rank that ended first. That may be one which lost its peer: the rank that
raised the exception ends only when Horovod has shut down on all of them. And the launcher's output
does not say which rank wrote what.
"""

from __future__ import annotations

import contextlib
import socket
import traceback
from collections.abc import Mapping

from hvd_pods.common import notices
from hvd_pods.common.contract import FENCE
from hvd_pods.common.tracebacks import LONGEST, TracebackReader


def describe(error: BaseException) -> str:
    """The exception's line, and where it was raised; as master/failure.py finds both in a log."""
    reader = TracebackReader()
    reader.take("Traceback (most recent call last)")
    parts = traceback.format_exception(type(error), error, error.__traceback__, chain=False)
    for line in "".join(parts).splitlines():
        found = reader.take(line)
        if found:
            return found
    # The reader does not know every form, such as that of an exception group.
    first = traceback.format_exception_only(type(error), error)[0]
    return first[:LONGEST].strip()


def notify(variables: Mapping[str, str], rank: int, error: BaseException) -> None:
    """Report the exception of a rank with these environment variables to its master.

    Where the variables name no master, nothing is sent. A failure is ignored: it must not change
    how the rank ends.
    """
    address = variables.get(notices.ADDRESS)
    if address:
        with contextlib.suppress(Exception):
            fence = variables.get(FENCE, "")
            worker = socket.gethostname()
            text = describe(error)
            notices.send(address, fence, kind=notices.RAISED, worker=worker, rank=rank, text=text)
