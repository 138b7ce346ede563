"""Rules of the pods that are in the way of a run, which the master replaces.

An upgrade leaves pods of an earlier revision, which may never answer, and which nothing but the
master replaces. The pod of a node that is gone, which Kubernetes has given up after some minutes,
stays until somebody deletes it for good: its StatefulSet creates no other one before.
"""

from __future__ import annotations

from typing import Mapping

from hvd_pods.agent.banner import STALE
from hvd_pods.cluster.objects import Object, parse_time
from hvd_pods.common.contract import REVISION_LABEL
from hvd_pods.common.run import Worker
from hvd_pods.rules import choosing
from hvd_pods.rules.effects import DeletePods
from hvd_pods.rules.state import Activity, Decision, RunState
from hvd_pods.rules.worker_names import format_workers

# Grace before a pod that should have ended, on a node that does not say so, is force-deleted.
GIVE_UP_AFTER = 60.0
# Stale pods of a worker that are deleted at once in an attempt. The second one may come from a
# controller that has not seen the upgrade yet; if the fourth one is stale, too, the StatefulSet is,
# until somebody mends it. So later ones are deleted as well, but only after so many seconds each.
MOST_REPLACED = 3
REPLACE_EVERY = 20.0


def may_replace_pods(state: RunState) -> bool:
    """Whether pods in the way are this master's to replace: later they may be the next run's."""
    activities = [Activity.GATHERING]
    if trains_with_fewer(state):
        activities.append(Activity.TRAINING)
    return state.activity in activities and not (state.is_terminating or state.hold.lost_to)


def trains_with_fewer(state: RunState) -> bool:
    """Whether ranks train on fewer workers than the run starts with."""
    launch = state.attempt.launch
    is_short = launch and choosing.count_missing_workers(state.run, launch.workers)
    return bool(is_short) and state.activity == Activity.TRAINING


def replace_pods(decision: Decision, pods: Mapping[str, Object]) -> None:
    """Delete pods of an earlier revision, and pods for good that should have ended long ago."""
    answering = decision.state.gathered.answering
    workers = decision.state.assignment.workers
    stale = {}
    ending = {}
    for name, worker in workers.items():
        item = pods[name]["metadata"] if name in pods else {}
        if "uid" not in item:
            continue
        since = item.get("deletionTimestamp")
        is_earlier = is_stale(worker, pods[name])
        replaced = decision.state.gathered.replaced
        if not is_earlier and name in replaced:
            # Whatever its StatefulSet made before, it has been mended.
            decision.set_gathered(replaced={n: each for n, each in replaced.items() if n != name})
        # While ranks train, a stale one may be the next run's.
        is_in_the_way = since is None and is_earlier and not trains_with_fewer(decision.state)
        if is_in_the_way and _may_replace(decision, name, item["uid"]):
            stale[name] = item["uid"]
        elif since and name not in answering and decision.wall - parse_time(since) > GIVE_UP_AFTER:
            node = pods[name].get("spec", {}).get("nodeName")
            log_once(decision, f"{name} should have ended at {since} on {node}: replacing it")
            ending[name] = item["uid"]
    if stale:
        log_once(
            decision, f"replacing workers {STALE}: {format_workers([workers[n] for n in stale])}"
        )
        decision.do(DeletePods(stale))
    if ending:
        decision.do(DeletePods(ending, grace=0))


def _may_replace(decision: Decision, name: str, uid: str) -> bool:
    """Whether a stale pod of this worker may be deleted now, which is noted then."""
    gathered = decision.state.gathered
    uids, at = gathered.replaced.get(name, (frozenset(), 0.0))
    if len(uids | {uid}) > MOST_REPLACED and decision.now - at < REPLACE_EVERY:
        return False
    if len(uids) <= MOST_REPLACED:
        uids |= {uid}
    decision.set_gathered(replaced={**gathered.replaced, name: (uids, decision.now)})
    return True


def makes_stale_pods(decision: Decision, worker: Worker, pod: Object | None) -> bool:
    """Whether a StatefulSet has replaced stale pods of a worker with stale ones repeatedly."""
    uids, _ = decision.state.gathered.replaced.get(worker.name, (frozenset(), 0.0))
    # It may have no pod for a moment, after the last one was deleted.
    return len(uids | {pod["metadata"].get("uid")} if pod else uids) > MOST_REPLACED


def is_stale(worker: Worker, pod: Object) -> bool:
    """Whether a pod is of another revision than the run."""
    return bool(pod["metadata"].get("labels", {}).get(REVISION_LABEL) != worker.revision)


def log_once(decision: Decision, text: str) -> None:
    """Log a message once in an attempt, of what is tried again and again."""
    announced = decision.state.gathered.announced
    if text not in announced:
        decision.log(text)
        decision.set_gathered(announced=announced | {text})
