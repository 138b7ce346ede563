"""What launchers and TensorFlow write around the lines of the ranks.

The master looks there for the cause of a failure, and hvdchart shows the lines without it.
"""

from __future__ import annotations

import re

# What launchers put before a rank's line, and Open MPI also before each piece of a line that the
# rank writes for itself, as C++ does: the chart `[1]<stdout>:`, Open MPI 4 with --tag-output
# `[1,1]<stdout>:`, and Open MPI 5 with `--output tag-fullname` `[prterun-host@1,1]<stdout>: `, with
# a space.
_TAG = re.compile(
    r"^\[(?:(?:\d+|(?P<prterun>[^][]*)),)?(?P<rank>\d{1,7})\]<std(?:out|err)>:(?(prterun) ?)"
)
# The lines with which a launcher's report of a failure begins.
REPORT = (
    r"Primary job  terminated|MPI_ABORT was invoked"
    r"|^(?:mpirun|prterun|orterun)\b.* (?:detected|noticed|has exited)"
)
# The title of a report by Hydra, which MPICH and Intel MPI use.
HYDRA_REPORT = "BAD TERMINATION"
# What Open MPI 5 writes when a daemon has left its group before its parent puts it into one.
OPEN_MPI_NOTES = r"plm:ssh: Warning: setpgid\(\d+,\d+\) failed in parent"
# What TensorFlow writes when it starts, behind a prefix with the time.
TENSORFLOW_NOTES = (
    r"oneDNN custom operations are on|This TensorFlow binary is optimized"
    r"|All log messages before absl::InitializeLog\(\)"
)


def split_tag(line: str) -> tuple[int | None, str]:
    """The rank that a tag before a line names, or None, and the line without its tags."""
    tag = _TAG.match(line)
    if not tag:
        return None, line
    return int(tag["rank"]), line[tag.end() :].replace(tag[0], "")
