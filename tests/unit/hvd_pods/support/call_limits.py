"""Calls to the API server of a test: how long they are repeated."""

from __future__ import annotations

from hvd_pods.cluster.kube import CallLimits
from tests.support.fakes.faults import TIMEOUT

# A failure is visible at once.
ONCE = CallLimits(retry_seconds=0.0)
# Calls are repeated, with short pauses.
PATIENT = CallLimits(retry_seconds=TIMEOUT, first_delay_seconds=0.002, longest_delay_seconds=0.01)
