"""The variables that the master gives each program that it starts in a worker."""

from __future__ import annotations

# The number of the master's launch: a later one is greater (rules/holding.py).
EPOCH = "HVD_EPOCH"
# The number of the attempt, from 1.
ATTEMPT = "HVD_ATTEMPT"
# By this, a rank knows the state that its run has left in a worker's memory (library/keep.py).
RUN_ID = "HVD_RUN_ID"
# Where notices about ranks go (common/notices.py), and where the ranks meet
# (common/rank_variables.py).
NOTICES = "HVD_NOTICES"
MEETING = "HVD_MEETING"
