"""The text that launchers and TensorFlow write around the lines of the ranks.

The master looks there for the cause of a failure. hvdchart shows the lines without that text.
"""

from __future__ import annotations

import re

# The tag that launchers put before a rank's line. Open MPI also puts it before each piece of a line
# that the rank writes separately, as C++ does. The chart writes `[1]<stdout>:`, Open MPI 4 with
# --tag-output `[1,1]<stdout>:`, and Open MPI 5 with `--output tag-fullname`
# `[prterun-host@1,1]<stdout>: `, with a space.
_RANK_TAG = re.compile(
    r"^\[(?:(?:\d+|(?P<prterun>[^][]*)),)?(?P<rank>\d{1,7})\]<std(?:out|err)>:(?(prterun) ?)"
)
# The lines at the beginning of a launcher's report of a failure.
REPORT = (
    r"Primary job  terminated|MPI_ABORT was invoked"
    r"|^(?:mpirun|prterun|orterun)\b.* (?:detected|noticed|has exited)"
)
# The title of a report by Hydra, which MPICH and Intel MPI use.
HYDRA_REPORT = "BAD TERMINATION"
# The note of Open MPI 5 when a daemon has left its group before its parent puts it into one.
OPEN_MPI_NOTES = r"plm:ssh: Warning: setpgid\(\d+,\d+\) failed in parent"
# The notes that TensorFlow writes at its start, behind a prefix with the time.
TENSORFLOW_NOTES = (
    r"oneDNN custom operations are on|This TensorFlow binary is optimized"
    r"|All log messages before absl::InitializeLog\(\)"
)


def split_tag(line: str) -> tuple[int | None, str]:
    """Return the rank of the tag before a line, or None, and the line without its tags."""
    tag = _RANK_TAG.match(line)
    if not tag:
        return None, line
    return int(tag["rank"]), line[tag.end() :].replace(tag[0], "")
