"""The form of a contradiction between values, and what several of them use."""

from __future__ import annotations

from typing import NamedTuple

from tests.chart.render import Values

DATA_VOLUMES = [{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]
AT_DATA = [{"name": "x", "mountPath": "/data"}]


class Contradiction(NamedTuple):
    """Values that the chart must refuse."""

    values: Values
    # What the message names as refused: both keys, and what is in them.
    names: list[str]
    # What the message says to do, as values to merge, in which None removes a key.
    remedy: Values
