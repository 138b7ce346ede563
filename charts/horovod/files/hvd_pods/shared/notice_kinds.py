"""The kinds of notices (pod/notices.py), and how often a worker checks its ranks for them."""

from __future__ import annotations

# Kinds of notices about a rank: it raised the exception that ends it, it failed, it ended with 0,
# it was asked to end, and its script ended after that.
RAISED = "raised"
FAILED = "failed"
FINISHED = "finished"
ASKED = "asked"
ENDED = "ended"
# The rank's state is in the memory of its worker, so that its end costs no step.
KEPT = "kept"
# A signal has stopped the rank, a debugger holds it, it uses no CPU, and the pod of a worker is
# terminating.
STOPPED = "stopped"
DEBUGGED = "debugged"
IDLE = "idle"
LEAVING = "leaving"
# Seconds between two checks by a worker of its ranks.
RANK_WATCH_INTERVAL_SECONDS = 5.0
