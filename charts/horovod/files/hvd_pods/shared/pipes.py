"""The pipes of child processes."""

from __future__ import annotations

from typing import IO, AnyStr


def pipe_of(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """Return a stream of a process that was started with `subprocess.PIPE` for it.

    Raises ValueError for a process that was started without it.
    """
    if stream is None:
        raise ValueError("the process was started without a pipe for this stream")
    return stream
