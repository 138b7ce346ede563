"""Rules of a run that continues with fewer workers: it adds new workers while it trains.

The master ends the launch and begins the next one at once, on more workers. The ranks continue from
their state in memory (library/keep). If a script keeps no state, the launch is not ended. The
master first prepares the new workers, so that the ranks stop only for a restart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping

from hvd_pods.rules import launch_abort, pod_replacement, worker_selection
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import PrepareNewcomers
from hvd_pods.rules.events import NewcomersReady
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.rules.worker_names import format_workers
from hvd_pods.shared.errors import ResizedError
from hvd_pods.shared.run import Pod
from hvd_pods.shared.run_events import RunEvent

# Seconds for which a new worker must answer before ranks are ended for it: others may come, too.
SETTLE_SECONDS = 3.0
# Seconds between two launches that begin because workers have come. They are doubled, up to the
# last number, each time that a worker is lost within twice as many seconds: a worker that comes and
# goes repeatedly must not stop the training.
GROWTH_INTERVAL_SECONDS = 30.0
MAX_GROWTH_INTERVAL_SECONDS = 600.0
# Seconds until the next try to prepare workers after a failure. Ranks without a kept state are
# asked again after SETTLE_SECONDS, then after twice as long, up to these seconds.
PREPARE_RETRY_DELAY_SECONDS = 30.0


def note_size(decision: Decision) -> None:
    """Report that the ranks start on another number of workers than before."""
    state = decision.state
    launch = state.attempt.launch
    run = state.run
    if launch is None or not run.is_elastic or state.activity != Activity.TRAINING:
        return
    wanted = sum(run.needed_workers.values())
    before = state.workers_before or wanted
    now = len(launch.workers)
    interval = state.growth_interval_seconds or GROWTH_INTERVAL_SECONDS
    message = f"{state.ranks} ranks train on {now} of {wanted} workers"
    if now < before:
        is_soon = decision.now - state.grown_at < 2 * interval
        growth_interval_seconds = (
            min(2 * interval, MAX_GROWTH_INTERVAL_SECONDS) if is_soon else GROWTH_INTERVAL_SECONDS
        )
        decision.state = replace(decision.state, growth_interval_seconds=growth_interval_seconds)
        decision.report(RunEvent.SHRUNK, message)
    elif now > before:
        decision.report(RunEvent.GROWN, message)
    decision.state = replace(decision.state, workers_before=now)


def await_newcomers(decision: Decision) -> None:
    """Wait a moment for new workers that could have ranks, after workers have come or gone."""
    if not find_newcomers(decision):
        decision.clear_timers(TimerKind.GROW)
    elif TimerKind.GROW not in decision.state.timers:
        interval = decision.state.growth_interval_seconds or GROWTH_INTERVAL_SECONDS
        decision.set_timer(
            TimerKind.GROW, max(decision.now + SETTLE_SECONDS, decision.state.grown_at + interval)
        )


def find_newcomers(decision: Decision) -> Mapping[str, Pod]:
    """Return the new workers that the launch lacks; none while it cannot be ended for them."""
    state = decision.state
    run = state.run
    launch = state.attempt.launch
    if state.activity != Activity.TRAINING or launch is None or not run.is_elastic:
        return {}
    is_ending = launch.problem or launch.asked or launch.finished or launch.ended
    if is_ending or launch.is_growing or state.is_terminating:
        return {}
    missing = worker_selection.count_missing_workers(run, launch.workers)
    newcomers = {}
    for worker in run.workers:
        pod = state.attempt_workers.answering.get(worker.name)
        is_new = pod is not None and worker.name not in launch.workers
        is_steady = worker.name not in state.attempt_workers.reasons
        is_usable = is_new and is_steady and pod not in state.broken_pods
        if is_usable and missing.get(worker.stateful_set, 0):
            missing[worker.stateful_set] -= 1
            newcomers[worker.name] = state.attempt_workers.answering[worker.name]
    return newcomers


def prepare(decision: Decision) -> None:
    """Prepare workers that have answered for a while for the next launch."""
    launch = decision.attempt.launch
    pods = find_newcomers(decision)
    if launch and pods:
        decision.launch = replace(decision.launch, is_growing=True)
        addresses = {name: pod.address for name, pod in pods.items()}
        number = decision.attempt.number
        decision.add_effects(PrepareNewcomers(number, addresses, pods, decision.launch.workers))


def on_ready(decision: Decision, event: NewcomersReady) -> None:
    """End the launch, so that the next launch uses the prepared workers."""
    if decision.state.activity != Activity.TRAINING or not decision.attempt.launch:
        return
    decision.launch = replace(decision.launch, is_growing=False)
    came = find_newcomers(decision)
    names = format_workers(
        [decision.state.assignment.workers[name] for name in event.workers if name in came]
    )
    after = PREPARE_RETRY_DELAY_SECONDS
    if event.problem:
        pod_replacement.log_once(
            decision, f"{event.problem}; trying again in {PREPARE_RETRY_DELAY_SECONDS:.0f} s"
        )
    elif names and not event.is_state_kept:
        # The ranks may have just started.
        refusals = decision.attempt.launch.refusals
        after = min(SETTLE_SECONDS * 2**refusals, PREPARE_RETRY_DELAY_SECONDS)
        decision.launch = replace(decision.launch, refusals=refusals + 1)
        if after == PREPARE_RETRY_DELAY_SECONDS:
            reason = "the ranks do not keep their state in memory (keep), and would lose steps"
            pod_replacement.log_once(decision, f"{names} wait for the next attempt: {reason}")
    elif names:
        decision.state = replace(decision.state, grown_at=decision.now)
        launch_abort.abort(
            decision, ResizedError(f"{names} came: starting the ranks again with them", 1)
        )
        return
    if came:
        decision.set_timer(TimerKind.GROW, decision.now + after)
