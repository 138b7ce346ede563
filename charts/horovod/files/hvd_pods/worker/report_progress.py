"""Prints the progress that the ranks of this worker report; the master reads it over SSH.

Each rank may write its step, the number of steps, its loss and its images per second to a file in
HVD_METRICS_DIR, which common/metrics.py serves.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common.metrics import read_script_file
from hvd_pods.common.progress_samples import parse_progress, select_samples

# Seconds between two looks at the files.
LOOK_EVERY = 1.0


def read_folder(folder: Path, since: float) -> str:
    """What the first rank here tells that has written after `since`: earlier runs left files."""
    try:
        files = [file for file in folder.iterdir() if file.name.isdecimal()]
    except OSError:
        return ""
    for file in sorted(files, key=lambda file: int(file.name)):
        try:
            is_present = file.stat().st_mtime >= since
        except OSError:
            continue
        samples = select_samples(read_script_file(file)) if is_present else []
        if parse_progress(samples):
            return "\t".join(samples)
    return ""


def report(folder: Path, seconds: float, look_every: float = LOOK_EVERY) -> None:
    """Print what the ranks here tell, each time that it changes, until standard input ends.

    They were started so many seconds ago: the files of the attempt before, whose loss may be the
    reason for its end, are older.
    """
    since, last, is_over = time.time() - seconds, "", False
    while not is_over:
        is_over = bool(select.select([sys.stdin], [], [], look_every)[0])
        line = read_folder(folder, since)
        if line not in ("", last):
            print(line, flush=True)
            last = line


def main(environment: Mapping[str, str] = os.environ) -> int:
    """On a worker: tell the master."""
    try:
        report(Path(environment["HVD_METRICS_DIR"]), float(sys.argv[1]))
    except (BrokenPipeError, KeyError):
        # The master has gone; or a worker that an earlier version of the chart has started.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
