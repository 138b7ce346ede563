"""Remove hvdchart's own lines from the traceback of a failed call."""

from __future__ import annotations

from contextlib import AbstractContextManager, ContextDecorator

from hvdchart.calls.connection import RemoteTraceback
from hvdchart.errors import HvdchartError


class _CallersLines(ContextDecorator, AbstractContextManager[None]):
    """Removes hvdchart's own lines from the traceback of a failed call.

    This applies to errors for the user, and to exceptions of the function, whose own lines are in
    the cause. The traceback of a defect keeps all lines.
    """

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_of_function = error is not None and isinstance(error.__cause__, RemoteTraceback)
        if not (is_of_function or isinstance(error, HvdchartError)):
            return
        if error is not None and not is_of_function:
            # Its text names the cause. The cause's own lines are those of libraries.
            error.__cause__ = None
            error.__suppress_context__ = True
        while error is not None:
            # From Python 3.11 on, Python does not add a line of the function that contains this
            # block.
            error.__traceback__ = None
            error = error.__context__ if error.__cause__ is None else error.__cause__


callers_lines = _CallersLines()
