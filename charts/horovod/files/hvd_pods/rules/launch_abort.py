"""The rule by which this master ends a launch that has not ended by itself."""

from __future__ import annotations

from dataclasses import replace

from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import EndLauncher
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.errors import LostWorkerError, ResizedError, RunError

# Seconds from SIGTERM to SIGKILL for a launcher: in general; when workers are lost, because it
# would wait for their daemons, or when workers have come; and the same in mode direct, which starts
# no daemons.
LAUNCHER_GRACE_PERIOD_SECONDS = 5.0
RESTART_GRACE_PERIOD_SECONDS = 1.0
DIRECT_RESTART_GRACE_PERIOD_SECONDS = 0.3


def abort(decision: Decision, problem: RunError) -> None:
    """End this launch, which then fails with `problem`; the run may go on."""
    launch = decision.attempt.launch
    if decision.state.activity != Activity.TRAINING or launch is None or launch.problem:
        return
    decision.launch = replace(decision.launch, problem=problem)
    grace_period_seconds = LAUNCHER_GRACE_PERIOD_SECONDS
    if isinstance(problem, (LostWorkerError, ResizedError)):
        is_direct = decision.state.run.mode == "direct"
        grace_period_seconds = (
            DIRECT_RESTART_GRACE_PERIOD_SECONDS if is_direct else RESTART_GRACE_PERIOD_SECONDS
        )
    decision.set_timer(TimerKind.KILL, decision.now + grace_period_seconds)
    decision.add_effects(EndLauncher())
