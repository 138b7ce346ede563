"""The metrics of a worker's ranks for Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

from hvd_pods.common.metrics import Sample, format_page, script_samples

# The name of a rank's file. Other files, such as files that are being written, are left out.
RANK_FILE = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9_.]*")
# Files of a page, which may each be large.
MOST_FILES = 256


def make_page(slots: str, folder: Path) -> str:
    """All metrics of a worker as text; its ranks write theirs to `folder`."""
    samples = [Sample("horovod_slots", slots)]
    files = sorted(file for file in folder.iterdir() if RANK_FILE.fullmatch(file.name))
    for file in files[:MOST_FILES]:
        samples += script_samples(file, f'rank="{file.name}"')
    return format_page(samples)
