"""Prints the progress that the ranks of this worker report; for the master.

Each rank may write its step, the number of steps, its loss and its samples per second to a file in
HVD_METRICS_DIR, which the worker serves.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.pod.metrics import parse_progress, read_script_file, select_progress
from hvd_pods.shared import contract

# Seconds between two reads of the files.
PROGRESS_POLL_INTERVAL_SECONDS = 1.0


def read_folder(folder: Path, since: float) -> str:
    """Return the samples of the first rank that wrote after `since`: earlier runs left files."""
    try:
        files = [file for file in folder.iterdir() if file.name.isdecimal()]
    except OSError:
        return ""
    for file in sorted(files, key=lambda file: int(file.name)):
        try:
            is_present = file.stat().st_mtime >= since
        except OSError:
            continue
        samples = select_progress(read_script_file(file)) if is_present else []
        if parse_progress(samples):
            return "\t".join(samples)
    return ""


def report(
    folder: Path, seconds: float, poll_interval_seconds: float = PROGRESS_POLL_INTERVAL_SECONDS
) -> None:
    """Print the progress of this worker's ranks when it changes, until standard input ends.

    The ranks were started `seconds` ago. Older files belong to the previous attempt, which the loss
    in them may have ended.
    """
    since = time.time() - seconds
    last = ""
    is_over = False
    while not is_over:
        is_over = bool(select.select([sys.stdin], [], [], poll_interval_seconds)[0])
        line = read_folder(folder, since)
        if line not in ("", last):
            print(line, flush=True)
            last = line


def main(environment: Mapping[str, str] = os.environ) -> int:
    try:
        report(Path(environment[contract.METRICS_DIR]), float(sys.argv[1]))
    except BrokenPipeError:
        # The connection to the master is closed.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
