"""The error output of launchers, and the cause that is found in it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hvd_pods.master.error_output import ErrorOutput
from hvd_pods.rules.events import Cause, Notice
from tests.support.runs import make_run

# Two workers of two slots, then one of four.
WORKERS = make_run().workers
OPEN_MPI_4 = """\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[15055,1],3]
  Exit code:    {code}
--------------------------------------------------------------------------
"""


def find_cause(
    text: str,
    code: int = 1,
    exception_notices: Sequence[Notice] = (),
    passed: str | None = None,
    exit_notices: Sequence[Notice] = (),
    before: str = "",
) -> Cause | None:
    """What is found in a launcher's output, which is passed on, unchanged unless `passed`.

    `before` was passed on before the launcher went on.
    """
    reader, writer = os.pipe()
    out, passed_on = os.pipe()
    with os.fdopen(reader, "rb") as source:
        output = ErrorOutput(source, passed_on)
        os.write(writer, before.encode())
        begun = b""
        while len(begun) < len(before):
            begun += os.read(out, 4096)
        os.write(writer, text.encode())
        os.close(writer)
        result = output.find_cause(WORKERS, code, exception_notices, exit_notices)
    os.close(passed_on)
    with os.fdopen(out, "rb") as received:
        assert received.read().decode() == (text if passed is None else passed)
    return result


def judge_output(
    text: str,
    code: int = 1,
    exception_notices: Sequence[Notice] = (),
    exit_notices: Sequence[Notice] = (),
) -> tuple[str, bool]:
    """The cause that is found, and whether it is sure to repeat."""
    result = find_cause(text, code, exception_notices, exit_notices=exit_notices)
    assert result
    return result.text, result.is_sure_to_repeat
