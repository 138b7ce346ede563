"""Where library/keep holds the states of this pod's ranks; the library itself imports slowly."""

from __future__ import annotations

import os
from pathlib import Path

from hvd_pods.common import contract

# As library/keep/worker.py has it.
FOLDER = "/dev/shm/hvd-keep"  # noqa: S108 - for the pod's user alone
KEPT_FOLDER = Path(os.environ.get(contract.KEEP, FOLDER))


def has_states() -> bool:
    """Whether a run has left a state that all of its ranks have alike."""
    return any(KEPT_FOLDER.glob("*/*-shared.*"))


def find_kept(run: str) -> Path | None:
    """Where the state of a run is in the worker's memory; None without one.

    `run` is the run's identity.
    """
    folder = KEPT_FOLDER / Path(run).name
    return folder if run and any(folder.glob("*-shared.*")) else None
