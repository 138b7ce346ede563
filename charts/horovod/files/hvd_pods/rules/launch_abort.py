"""The rule by which this master ends a launch that has not ended by itself."""

from __future__ import annotations

from dataclasses import replace

from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import EndLauncher
from hvd_pods.rules.state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.errors import LostWorkerError, ResizedError, RunError

# Seconds from SIGTERM to SIGKILL for a launcher: in general; when workers are lost, because it
# would wait for their daemons, or when workers have come; and the same in mode direct, which starts
# no daemons.
END_WITHIN = 5.0
END_WITHOUT_WORKERS_WITHIN = 1.0
END_DIRECT_WITHIN = 0.3


def abort(decision: Decision, problem: RunError) -> None:
    """End this launch, which then fails with `problem`; the run may go on."""
    launch = decision.attempt.launch
    if decision.state.activity != Activity.TRAINING or launch is None or launch.problem:
        return
    decision.launch = replace(decision.launch, problem=problem)
    within = END_WITHIN
    if isinstance(problem, (LostWorkerError, ResizedError)):
        is_direct = decision.state.run.mode == "direct"
        within = END_DIRECT_WITHIN if is_direct else END_WITHOUT_WORKERS_WITHIN
    decision.set_timer(TimerKind.KILL, decision.now + within)
    decision.add_effects(EndLauncher())
