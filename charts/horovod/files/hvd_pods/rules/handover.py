"""Rules of the end in a queue: a preempted master stays until the run has new pods."""

from __future__ import annotations

from dataclasses import replace

from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import Exit, ListPods
from hvd_pods.rules.events import PodsListed
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.contract import QUEUE
from hvd_pods.shared.errors import InterruptedRunError
from hvd_pods.shared.objects import Object

# The result of a check for workers of the next admission: a pod that is not about to end, or no
# pod.
STAYS = "stays"
NONE = "none"
# Seconds between two checks; for which a pod must stay; in which a StatefulSet without pods creates
# some; and of its grace period that the master keeps.
SUCCESSOR_POLL_INTERVAL_SECONDS = 0.5
SUCCESSOR_STAY_SECONDS = 1.0
SUCCESSOR_TIMEOUT_SECONDS = 5.0
HANDOVER_RESERVE_SECONDS = 3.0


def is_preempted(decision: Decision) -> bool:
    """Return whether a queue has preempted this pod; the run continues after an admission.

    With a queue, any other interruption is treated as a preemption, too.
    """
    state = decision.state
    is_queued = QUEUE in state.job.annotations
    is_interrupted = isinstance(state.problem, InterruptedRunError) and state.is_terminating
    return is_interrupted and is_queued and not state.job.is_withdrawn


def hand_over(decision: Decision) -> None:
    """Stay until the queue sees another pod of the run. This is the last task of the master.

    Kueue declares a run finished when all pods that it sees have ended, and the workers of a
    preempted run end at the same time, before their StatefulSet makes the first new one.
    """
    decision.state = replace(decision.state, activity=Activity.HANDING_OVER)
    look_for_successors(decision)


def look_for_successors(decision: Decision) -> None:
    """List the pods, if this pod may still stay."""
    state = decision.state
    if decision.now >= state.terminating_since + state.run.grace_seconds - HANDOVER_RESERVE_SECONDS:
        decision.add_effects(Exit(state.problem))
    else:
        decision.add_effects(ListPods(state.attempt.number, ()))


def on_successors(decision: Decision, event: PodsListed) -> None:
    """End if a worker's pod stays, or if no pods are created: the run was uninstalled.

    Either must last for a time: a queue deletes the pods of a run one after the other.
    """
    successors = ""
    if any(map(_will_stay, event.pods.values())):
        successors = STAYS
    elif not event.pods and not event.problem:
        successors = NONE
    if successors != decision.state.successors:
        decision.state = replace(
            decision.state, successors=successors, successors_since=decision.now
        )
    needed_seconds = {STAYS: SUCCESSOR_STAY_SECONDS, NONE: SUCCESSOR_TIMEOUT_SECONDS}.get(
        successors, float("inf")
    )
    if decision.now - decision.state.successors_since >= needed_seconds:
        decision.add_effects(Exit(decision.state.problem))
    else:
        decision.set_timer(TimerKind.SUCCESSORS, decision.now + SUCCESSOR_POLL_INTERVAL_SECONDS)


def _will_stay(pod: Object) -> bool:
    has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not has_ended and "deletionTimestamp" not in pod["metadata"]
