"""Serves the metrics of a worker's ranks for Prometheus. A process of its own."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common.metrics import Sample, format_page, make_server, script_samples
from hvd_pods.common.reporting import log

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


def main() -> int:
    """Serve until this process is ended."""
    port, slots = int(os.environ["HVD_METRICS_PORT"]), os.environ["HVD_SLOTS"]
    folder = Path(os.environ["HVD_METRICS_DIR"])
    try:
        server = make_server(lambda: make_page(slots, folder), port)
    except OSError as problem:
        log(f"cannot serve metrics on port {port}: {problem}")
        return 1
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
