"""Where library/keep holds the states of this pod's ranks, without the library's slow import."""

from __future__ import annotations

import os
from pathlib import Path

from hvd_pods.shared import contract

# The same folder as in library/keep/worker.py.
DEFAULT_KEPT_FOLDER = "/dev/shm/hvd-keep"  # noqa: S108 - for the pod's user alone
KEPT_FOLDER = Path(os.environ.get(contract.KEEP_FOLDER, DEFAULT_KEPT_FOLDER))


def has_states() -> bool:
    """Return whether a run has left a state that is the same for all of its ranks."""
    return any(KEPT_FOLDER.glob("*/*-shared.*"))


def find_kept(run: str) -> Path | None:
    """Return the folder of a run's state in the worker's memory; None if there is no state.

    `run` is the run's identity.
    """
    folder = KEPT_FOLDER / Path(run).name
    return folder if run and any(folder.glob("*-shared.*")) else None
