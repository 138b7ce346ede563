"""Rules of the pods that are in the way of a run, which the master replaces.

An upgrade leaves pods of an earlier revision. They may never answer, and only the master replaces
them. Kubernetes gives up the pod of a lost node after some minutes, but the pod stays until it is
force-deleted: its StatefulSet creates no other pod before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping

from hvd_pods.rules import worker_selection
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import DeletePods
from hvd_pods.rules.run_state import Activity, RunState
from hvd_pods.rules.worker_names import format_workers
from hvd_pods.shared.contract import REVISION_LABEL
from hvd_pods.shared.no_answer import STALE
from hvd_pods.shared.objects import Object, parse_time
from hvd_pods.shared.run import Worker

# Seconds before a pod is force-deleted that should have ended, but whose node does not report it.
FORCE_DELETE_DELAY_SECONDS = 60.0
# The number of stale pods of a worker that are deleted without a pause in an attempt. The second
# one may come from a controller that has not seen the upgrade yet. If the fourth one is stale, too,
# the StatefulSet is stale until somebody repairs it. Later ones are also deleted, but only after so
# many seconds each.
MAX_REPLACED_AT_ONCE = 3
REPLACE_INTERVAL_SECONDS = 20.0


def may_replace_pods(state: RunState) -> bool:
    """Return whether this master may replace pods in the way.

    Later they may belong to the next run.
    """
    activities = [Activity.WAITING_FOR_WORKERS]
    if trains_with_fewer(state):
        activities.append(Activity.TRAINING)
    return state.activity in activities and not (state.is_terminating or state.record_lock.lost_to)


def trains_with_fewer(state: RunState) -> bool:
    """Return whether ranks train on fewer workers than the run starts with."""
    launch = state.attempt.launch
    is_short = launch and worker_selection.count_missing_workers(state.run, launch.workers)
    return bool(is_short) and state.activity == Activity.TRAINING


def replace_pods(decision: Decision, pods: Mapping[str, Object]) -> None:
    """Delete pods of an earlier revision, and force-delete pods that should have ended long ago."""
    answering = decision.attempt_workers.answering
    workers = decision.state.assignment.workers
    stale = {}
    ending = {}
    for name, worker in workers.items():
        item = pods[name]["metadata"] if name in pods else {}
        if "uid" not in item:
            continue
        since = item.get("deletionTimestamp")
        is_earlier = is_stale(worker, pods[name])
        replaced = decision.attempt_workers.replaced
        if not is_earlier and name in replaced:
            # The StatefulSet has been repaired.
            decision.attempt_workers = replace(
                decision.attempt_workers,
                replaced={other: entry for other, entry in replaced.items() if other != name},
            )
        # While ranks train, a stale pod may belong to the next run.
        is_in_the_way = since is None and is_earlier and not trains_with_fewer(decision.state)
        if is_in_the_way and _may_replace(decision, name, item["uid"]):
            stale[name] = item["uid"]
        elif (
            since
            and name not in answering
            and decision.wall - parse_time(since) > FORCE_DELETE_DELAY_SECONDS
        ):
            node = pods[name].get("spec", {}).get("nodeName")
            log_once(decision, f"{name} should have ended at {since} on {node}: replacing it")
            ending[name] = item["uid"]
    if stale:
        log_once(
            decision,
            f"replacing workers {STALE}: {format_workers([workers[name] for name in stale])}",
        )
        decision.add_effects(DeletePods(stale))
    if ending:
        decision.add_effects(DeletePods(ending, grace_period_seconds=0))


def _may_replace(decision: Decision, name: str, uid: str) -> bool:
    """Return whether a stale pod of this worker may be deleted now; if so, note the deletion."""
    attempt_workers = decision.attempt_workers
    uids, at = attempt_workers.replaced.get(name, (frozenset(), 0.0))
    if len(uids | {uid}) > MAX_REPLACED_AT_ONCE and decision.now - at < REPLACE_INTERVAL_SECONDS:
        return False
    if len(uids) <= MAX_REPLACED_AT_ONCE:
        uids |= {uid}
    decision.attempt_workers = replace(
        decision.attempt_workers, replaced={**attempt_workers.replaced, name: (uids, decision.now)}
    )
    return True


def makes_stale_pods(decision: Decision, worker: Worker, pod: Object | None) -> bool:
    """Return whether a StatefulSet repeatedly replaces stale pods of a worker with stale ones."""
    uids, _ = decision.attempt_workers.replaced.get(worker.name, (frozenset(), 0.0))
    # The worker may have no pod for a moment, after the last one was deleted.
    return len(uids | {pod["metadata"].get("uid")} if pod else uids) > MAX_REPLACED_AT_ONCE


def is_stale(worker: Worker, pod: Object) -> bool:
    """Return whether a pod is of another revision than the run."""
    return bool(pod["metadata"].get("labels", {}).get(REVISION_LABEL) != worker.revision)


def log_once(decision: Decision, text: str) -> None:
    """Log a message about a repeated action only once in an attempt."""
    announced = decision.attempt_workers.announced
    if text not in announced:
        decision.log(text)
        decision.attempt_workers = replace(decision.attempt_workers, announced=announced | {text})
