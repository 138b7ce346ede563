"""Serves the run's state for Prometheus."""

from __future__ import annotations

import time

from hvd_pods.pod.metrics import Sample, format_page
from hvd_pods.rules.run_state import RunState
from hvd_pods.shared.run_events import RunEvent

# Before the first stage.
STARTING_STAGE = "Starting"
STAGES = (STARTING_STAGE, *(event.reason for event in RunEvent if event.sets_stage))


def make_page(state: RunState) -> str:
    """Return the master's metrics as text."""
    stage = state.stage.reason if state.stage else STARTING_STAGE
    samples = [
        Sample("hvdchart_stage", str(int(name == stage)), (f'stage="{name}"',)) for name in STAGES
    ]
    launch = state.attempt.launch
    stalled = launch.stalls.list_named(time.monotonic()) if launch else []
    samples += [
        Sample("hvdchart_ranks", str(state.ranks)),
        Sample("hvdchart_workers_ready", str(len(state.attempt_workers.answering))),
        Sample("hvdchart_launches_total", str(state.launches)),
        Sample("hvdchart_stalls_total", str(state.stall_count)),
        Sample("hvdchart_ranks_stalled", str(len(stalled))),
        Sample("hvdchart_lost_seconds_total", f"{state.progress.lost:.1f}"),
    ]
    return format_page(samples)
