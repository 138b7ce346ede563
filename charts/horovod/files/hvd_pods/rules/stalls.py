"""Rules of stalls: ranks that keep the others waiting are named, and end the attempt after a time.

Horovod's first rank finds those that do not join a collective operation, and writes them to its
standard error again and again (master/stall_reader.py). A rank that is stopped is reported by its
worker (worker/rank_watch.py), and so is one that uses no CPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from hvd_pods.rules import launch_abort
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import ShowStacks
from hvd_pods.rules.events import Notice, RankMissing, RecordPurpose, StacksShown
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.stall_state import (
    FORGOTTEN_PERIODS,
    MAX_NAMED_RANKS,
    MESSAGE_COLLECT_SECONDS,
    NO_RANK,
    RankStall,
    describe_stalls,
)
from hvd_pods.rules.timers import TimerKind
from hvd_pods.rules.worker_names import find_worker
from hvd_pods.shared.errors import LaunchError
from hvd_pods.shared.notice_kinds import RANK_WATCH_INTERVAL_SECONDS
from hvd_pods.shared.run_events import RunEvent

# Seconds between two reports: a script may print Horovod's messages itself, without limit.
STALL_REPORT_INTERVAL_SECONDS = 5.0
# Seconds after which ranks are named: if all ranks use no CPU, as Horovod names ranks that do not
# join, or if ranks have not ended after another rank.
NAMING_DELAY_SECONDS = 60.0
# A rank that a signal has stopped ends the attempt after the time of so many steps, and after so
# many seconds at most, as PyTorch's watchdog does.
STOPPED_STEPS = 20
MAX_STOP_SECONDS = 600.0
# The minimum in seconds, and the seconds without reported steps: in general, and if each rank keeps
# its state. With kept states, a mistake costs no step, and less time than the wait for the rank.
STOP_LIMITS_SECONDS = (30.0, MAX_STOP_SECONDS)
KEPT_STOP_LIMITS_SECONDS = (2.0, 10.0)


def on_missing_rank(decision: Decision, event: RankMissing) -> None:
    """Handle Horovod's report that a rank has not joined."""
    launch = decision.attempt.launch
    if event.rank >= sum(worker.slots for worker in decision.state.run.workers):
        # The script itself has printed the message.
        return
    worker = None
    if launch:
        worker = find_worker(
            event.rank, [decision.state.assignment.workers[name] for name in launch.workers]
        )
    name = worker.name if worker else ""
    since = decision.now - event.seconds
    stall = RankStall(event.rank, name, event.what, since, decision.now, event.seconds)
    add_stall(decision, stall._replace(is_measured=False))


def note_idle(decision: Decision, notice: Notice) -> None:
    """Note that a rank uses no CPU: it waits for another one, or all wait for one that hangs."""
    launch = decision.launch
    run = decision.state.run
    notices = {**launch.idle_ranks, notice["rank"]: notice}
    idle = {
        rank: last
        for rank, last in notices.items()
        if decision.now - last["at"]
        < FORGOTTEN_PERIODS * max(last["period"], RANK_WATCH_INTERVAL_SECONDS)
    }
    decision.launch = replace(decision.launch, idle_ranks=idle)
    # Earlier ranks of a custom command have the same numbers as its present ones.
    over = frozenset() if run.mode == "custom" else decision.launch.all_ended
    if len(idle) < decision.state.ranks - len(over):
        return
    # Count from when the last rank became idle: until then, the others may have waited for it.
    since, rank = max((last["at"] - last["seconds"], rank) for rank, last in idle.items())
    if decision.now - since < min(
        NAMING_DELAY_SECONDS, run.stall_timeout_seconds or NAMING_DELAY_SECONDS
    ):
        return
    if not decision.launch.stalls.find(rank, since, RANK_WATCH_INTERVAL_SECONDS):
        decision.log(
            "no rank computes: each waits for another one, for a file or for the network; a rank "
            "whose stack is outside of a collective operation keeps the others waiting"
        )
    for rank, last in idle.items():
        period = max(last["period"], RANK_WATCH_INTERVAL_SECONDS)
        add_stall(
            decision, RankStall(rank, last["worker"], "uses no CPU", since, decision.now, period)
        )


def report_unfinished(decision: Decision) -> None:
    """Name the ranks that have not ended after others, and end the attempt if that lasts long.

    Ranks that wait for an ended rank wait for ever. Ranks that still make steps do not wait.
    """
    launch = decision.attempt.launch
    run = decision.state.run
    if decision.state.activity != Activity.TRAINING or launch is None or launch.problem:
        return
    if launch.asked:
        # Ranks that were asked to end have a time limit.
        return
    since = max(launch.finished_at, decision.state.last_step)
    limit = max(run.stall_timeout_seconds or float("inf"), NAMING_DELAY_SECONDS)
    delay = limit if launch.unfinished else NAMING_DELAY_SECONDS
    waited = decision.now - since
    if waited < delay:
        decision.set_timer(TimerKind.UNFINISHED, since + delay)
        return
    ranks = _find_unfinished(decision)
    text = _describe_unfinished(decision, ranks, waited)
    if waited >= limit:
        message = (
            f"{text}, longer than `launch.stallTimeoutSeconds={run.stall_timeout_seconds:.0f}`"
        )
        launch_abort.abort(decision, LaunchError(message, 1))
        return
    _note_unfinished(decision, ranks, since)
    _announce_stall(decision, text)
    if limit < float("inf"):
        decision.set_timer(TimerKind.UNFINISHED, since + limit)
    _show_stacks(decision, ranks)


def _note_unfinished(decision: Decision, ranks: Sequence[tuple[str, int]], since: float) -> None:
    """Note the first of these ranks (worker, number), which keep the others waiting."""
    # If all ranks have ended, no rank keeps the others waiting.
    worker, rank = ranks[0] if ranks else ("", NO_RANK)
    behaviour = f"has not ended after {name_ranks(decision.launch.finished[:1])}"
    stall = RankStall(rank, worker, behaviour, since, decision.now, float("inf"))
    decision.launch = replace(decision.launch, unfinished=stall)


def _show_stacks(decision: Decision, ranks: Sequence[tuple[str, int]]) -> bool:
    """Show the stacks of the first of these ranks (worker, number). Return False without ranks."""
    numbers: dict[str, list[int]] = {}
    for worker, rank in ranks[:MAX_NAMED_RANKS]:
        numbers.setdefault(worker, []).append(rank)
    if numbers:
        decision.add_effects(ShowStacks(decision.attempt.number, numbers))
    return bool(numbers)


def _find_unfinished(decision: Decision) -> list[tuple[str, int]]:
    """Return the ranks (worker, number) that have not ended with 0."""
    launch = decision.launch
    over = {rank for _, rank in launch.all_ended}
    workers = [decision.state.assignment.workers[name] for name in launch.workers]
    ranks = [(rank, find_worker(rank, workers)) for rank in range(decision.state.ranks)]
    return [(worker.name, rank) for rank, worker in ranks if worker and rank not in over]


def _describe_unfinished(
    decision: Decision, ranks: Sequence[tuple[str, int]], seconds: float
) -> str:
    launch = decision.launch
    others = name_ranks(ranks) if ranks else f"all ranks have, but {decision.state.run.mode}"
    first = name_ranks(launch.finished[:1])
    return f"{first} ended with exit code 0, and {others} has not ended for {seconds:.0f} s"


def name_ranks(ranks: Sequence[tuple[str, int]]) -> str:
    """Name ranks (worker, number), the first of them if there are many."""
    names = ", ".join(f"rank {rank} on {worker}" for worker, rank in ranks[:MAX_NAMED_RANKS])
    more = f" and {len(ranks) - MAX_NAMED_RANKS} more" if len(ranks) > MAX_NAMED_RANKS else ""
    return f"{names}{more}"


def add_stall(decision: Decision, stall: RankStall) -> None:
    """Note a stalled rank; report it when the other lines of the message have arrived."""
    launch = decision.attempt.launch
    if launch is None:
        return
    # Do not delay the end of an attempt. Names alone are delayed, in report_stalls.
    if TimerKind.STALLS not in decision.state.timers or stall.is_measured:
        at = decision.now + MESSAGE_COLLECT_SECONDS
        decision.set_timer(
            TimerKind.STALLS, min(at, decision.state.timers.get(TimerKind.STALLS, at))
        )
    decision.launch = replace(decision.launch, stalls=launch.stalls.add(stall))


def report_stalls(decision: Decision) -> None:
    """Name the ranks of a message, and end the attempt if that has lasted too long."""
    launch = decision.attempt.launch
    if launch is None or decision.state.activity != Activity.TRAINING:
        return
    lasting = map(decision.state.shorten, launch.stalls.new.values())
    late = [stall for stall in lasting if stall.seen - stall.since >= _find_limit(decision, stall)]
    if not late and decision.now < launch.stalls.quiet_until:
        decision.set_timer(TimerKind.STALLS, launch.stalls.quiet_until)
        return
    stalls, first = launch.stalls.collect()
    reason = (
        f"{describe_stalls(late)}, longer than {_describe_limit(decision, late[0])}" if late else ""
    )
    quiet = decision.now + STALL_REPORT_INTERVAL_SECONDS if first else stalls.quiet_until
    # The stacks of late ranks may not have arrived yet.
    late_now = reason or launch.stalls.late
    decision.launch = replace(
        decision.launch, stalls=replace(stalls, late=late_now, quiet_until=quiet)
    )
    if first:
        ago = decision.now - decision.state.last_step
        last_step = f"; the last step was {ago:.0f} s ago" if decision.state.last_step else ""
        _announce_stall(decision, f"{describe_stalls(first)}{last_step}")
    workers = decision.launch.workers
    ranks = [
        (stall.worker, stall.rank) for stall in first[:MAX_NAMED_RANKS] if stall.worker in workers
    ]
    if not _show_stacks(decision, ranks):
        end_stalled(decision)


def _announce_stall(decision: Decision, text: str) -> None:
    """Report the ranks that the others wait for, and count the stall."""
    decision.log(f"stalled: {text}")
    decision.report(RunEvent.STALLED, text)
    decision.state = replace(decision.state, stall_count=decision.state.stall_count + 1)
    decision.write_record(RecordPurpose.REPORT_STALL)


def _find_limit(decision: Decision, stall: RankStall) -> float:
    """Return how long a rank may keep the others waiting, in seconds.

    A rank that a signal has stopped does not work. Unless launch.stallTimeoutSeconds is set, its
    limit is the time of STOPPED_STEPS steps, measured by the reported steps.
    """
    run = decision.state.run
    limit = run.stall_timeout_seconds or float("inf")
    if not (stall.is_stopped and run.is_stall_timeout_default):
        return limit
    seconds = decision.state.progress.seconds_of_step
    least, unknown = (
        KEPT_STOP_LIMITS_SECONDS if decision.state.is_state_kept else STOP_LIMITS_SECONDS
    )
    steps = unknown if seconds is None else STOPPED_STEPS * seconds
    return min(limit, MAX_STOP_SECONDS, max(steps, least))


def _describe_limit(decision: Decision, stall: RankStall) -> str:
    limit = _find_limit(decision, stall)
    if limit == decision.state.run.stall_timeout_seconds:
        return f"`launch.stallTimeoutSeconds={limit:.0f}`"
    return f"{limit:.0f} s, which `launch.stallTimeoutSeconds` changes"


def end_stalled(decision: Decision, event: StacksShown | None = None) -> None:
    """End the attempt if ranks have stalled too long; their stacks are in the log now."""
    launch = decision.attempt.launch
    if launch is None:
        return
    if event:
        places = dict(event.places)
        late = launch.unfinished
        if late:
            late = late._replace(place=places.get(late.rank, late.place))
        launch = replace(launch, stalls=launch.stalls.note_places(places), unfinished=late)
        decision.launch = launch
    if launch.stalls.late:
        launch_abort.abort(decision, LaunchError(launch.stalls.late, 1))
