"""What the log says of a restore."""

from __future__ import annotations

import os
from typing import Sequence

from .agreement import Agreement
from .checkpoint import OTHER_PATH_REMEDY
from .log import log
from .packed_state import PackedState


def log_restored(
    agreed: Agreement,
    packed: PackedState | None,
    *,
    is_restored: bool,
    unused_checkpoints: Sequence[str],
) -> None:
    """Log on one rank what all continue from: a packed state, or that of the process.

    `is_restored` is whether the process had restored a state before.
    """
    if agreed.lost_shards:
        log(
            f"step {agreed.newest.step} is not complete: no worker has the shards of ranks "
            f"{agreed.lost_shards}"
        )
    if packed is not None:
        _log_packed(agreed, packed)
    else:
        _log_process(agreed.key.step, is_restored, unused_checkpoints)


def _log_packed(agreed: Agreement, packed: PackedState) -> None:
    """Log that all ranks continue from a packed state, and what it lacks."""
    step = agreed.key.step
    notes = f", sent to {agreed.lacking}" if agreed.lacking else ""
    if agreed.key.series < 0:
        notes += f"; another run has left it: to begin anew, {OTHER_PATH_REMEDY}"
    if agreed.shard_holders:
        notes += f"; shards of {len(agreed.shard_holders)} ranks are divided anew"
    log(f"continues after step {step}, found in {packed.place}{notes}")
    if agreed.ranks_without_own:
        log(
            f"ranks {agreed.ranks_without_own} have no random numbers and the like of their own "
            f"for step {step}: they go on with those that the script has made"
        )
    if agreed.removed_ranks:
        log(f"ranks {agreed.removed_ranks} are no more: what they had of their own is not used")


def _log_process(step: int, is_restored: bool, unused_checkpoints: Sequence[str]) -> None:
    """Log that all ranks continue from the state of rank 0's process, unless that is its first."""
    attempt = os.environ.get("HVD_ATTEMPT", "")
    if unused_checkpoints:
        log(
            f"begins at step {step}: {unused_checkpoints} are of another number of ranks, and are "
            "not used"
        )
    elif is_restored:
        log("no memory has what was committed: continues with the state of this process")
    elif attempt not in ("", "0", "1"):
        log(
            f"no worker's memory and no checkpoint has a state of this run: attempt {attempt} "
            f"begins at step {step}"
        )
