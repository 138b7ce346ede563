"""The traceback of what a call raises, without hvdchart's own lines."""

from __future__ import annotations

from contextlib import AbstractContextManager, ContextDecorator

from hvdchart.calls.connection import RemoteTraceback
from hvdchart.errors import HvdchartError


class _CallersLines(ContextDecorator, AbstractContextManager[None]):
    """Takes hvdchart's own lines from the traceback of what a call raises.

    That is an error for the user, or an exception of the function, whose own lines are in its
    cause. A defect keeps all of its lines.
    """

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_of_function = error is not None and isinstance(error.__cause__, RemoteTraceback)
        if not (is_of_function or isinstance(error, HvdchartError)):
            return
        if error is not None and not is_of_function:
            # Its text names the cause, whose own lines are those of libraries.
            error.__cause__ = None
            error.__suppress_context__ = True
        while error is not None:
            # From Python 3.11 on, no line of the function with this block is added again.
            error.__traceback__ = None
            error = error.__context__ if error.__cause__ is None else error.__cause__


callers_lines = _CallersLines()
