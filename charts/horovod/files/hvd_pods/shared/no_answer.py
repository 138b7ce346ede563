"""Why a worker does not respond as a worker of this run."""

from __future__ import annotations

from typing import NamedTuple

# The description of a worker of another revision.
STALE = "from before the last upgrade"


class NoAnswer(NamedTuple):
    """The reason why a worker does not respond as a worker of this run, and facts for decisions.

    `is_stale`: its pod is of an earlier revision. `lacks_service`: the Service was deleted, so that
    no worker has an address.
    """

    reason: str
    is_stale: bool = False
    lacks_service: bool = False
