"""Run programs in Go, such as Helm and kubectl, which the tests start thousands of times."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

# Garbage collection takes a third of the time of a short program. The limit is for a chart of many
# groups.
NO_GARBAGE_COLLECTION = {"GOGC": "off", "GOMEMLIMIT": "1GiB"}


def run_program(
    command: Sequence[str],
    standard_input: str | None = None,
    variables: Mapping[str, str] = os.environ,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit status.

    standard_input: of the program; that of this process for None. variables: its environment.
    Raises subprocess.TimeoutExpired after ten minutes.
    """
    return subprocess.run(
        command,
        input=standard_input,
        env={**variables, **NO_GARBAGE_COLLECTION},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
