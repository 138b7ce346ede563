"""The signs of a failure in the output of launchers and ranks, from failure_signs.json.

Each sign has the program that writes it, with its version where that is known. The sections are
regular expressions for the lines in which launchers name the first rank that failed (`failedRank`,
in which the group `signal` is absent for an exit) and for other lines of launchers that may precede
their report (`launcherLine`); parts of errors of ranks that lost their peer (`consequence`); and
messages about a volume that is full and stays so (`fullVolume`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

# Section -> sign -> who writes it.
_SIGNS: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
FAILED_RANK_PATTERNS = tuple(map(re.compile, _SIGNS["failedRank"]))
LAUNCHER_LINES = tuple(map(re.compile, _SIGNS["launcherLine"]))
CONSEQUENCES = tuple(_SIGNS["consequence"])
FULL_VOLUME = tuple(_SIGNS["fullVolume"])
