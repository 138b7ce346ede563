"""Rules about notices: what workers and ranks report about ranks (pod/notices.py)."""

from __future__ import annotations

from dataclasses import replace

from hvd_pods.rules import stalls
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import LoseWorkersAfter, ReleaseRanks
from hvd_pods.rules.events import Notice, NoticeTaken
from hvd_pods.rules.stall_state import RankStall
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.notice_kinds import (
    ASKED,
    DEBUGGED,
    ENDED,
    FAILED,
    FINISHED,
    IDLE,
    KEPT,
    LEAVING,
    RAISED,
    STOPPED,
)

# The maximum number of kept notices of each kind: training code can send them without limit.
MAX_NOTICES = 10_000


def on_notice(decision: Decision, event: NoticeTaken) -> None:
    """Handle a notice of a worker or a rank by its kind."""
    if decision.attempt.launch is None:
        if event.connection:
            decision.add_effects(ReleaseRanks([event.connection]))
        return
    kind = event.notice["kind"]
    if kind in KINDS:
        KINDS[kind](decision, {**event.notice, "at": decision.now}, event.connection)


def note_stopped(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a signal has stopped a rank."""
    _add_stall(decision, notice, "is stopped by a signal", is_stopped=True)


def note_debugged(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a debugger holds a rank."""
    _add_stall(decision, notice, "is stopped by a debugger", is_stopped=False)


def _add_stall(decision: Decision, notice: Notice, behaviour: str, *, is_stopped: bool) -> None:
    stall = RankStall(
        rank=notice["rank"],
        worker=notice["worker"],
        what=behaviour,
        since=decision.now - notice["seconds"],
        seen=decision.now,
        period=notice["period"],
        is_stopped=is_stopped,
    )
    stalls.add_stall(decision, stall)


def note_idle(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a rank uses no CPU."""
    stalls.note_idle(decision, notice)


def note_kept(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a rank keeps its state in memory.

    When all ranks do, a silent worker is lost sooner.
    """
    rank = notice["rank"]
    is_made_up = not 0 <= rank < decision.state.ranks
    if is_made_up or _starts_ranks_itself(decision):
        return
    was_kept = decision.state.is_state_kept
    decision.launch = replace(decision.launch, kept=decision.launch.kept | {rank})
    state = decision.state
    is_newly_kept = state.is_state_kept and not was_kept
    if is_newly_kept and state.lost_after_seconds != state.run.lost_after_seconds:
        decision.add_effects(LoseWorkersAfter(state.attempt.number, state.lost_after_seconds))


def note_raised(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that an exception has ended a rank."""
    decision.launch = replace(
        decision.launch,
        exception_notices=(*decision.launch.exception_notices, notice)[-MAX_NOTICES:],
    )


def note_failed(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a rank has ended with an exit code other than 0, or by a signal."""
    decision.launch = replace(
        decision.launch, exit_notices=(*decision.launch.exit_notices, notice)[-MAX_NOTICES:]
    )


def note_finished(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a rank has ended with 0 without being asked to."""
    if _starts_ranks_itself(decision):
        return
    launch = decision.launch
    finished_at = launch.finished_at
    if not launch.finished:
        finished_at = decision.now
        decision.set_timer(TimerKind.UNFINISHED, decision.now + stalls.NAMING_DELAY_SECONDS)
    finished = tuple(dict.fromkeys((*launch.finished, _place_of(notice))))[:MAX_NOTICES]
    decision.launch = replace(launch, finished=finished, finished_at=finished_at)


def note_ended(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that the script of a rank that was asked to end has ended.

    The rank may wait for a response.
    """
    launch = decision.launch
    waiting = (*launch.waiting, connection) if connection else launch.waiting
    decision.launch = replace(
        decision.launch, ended=launch.ended | {_place_of(notice)}, waiting=waiting
    )
    release_ended(decision)


def note_asked(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a rank was asked to end."""
    decision.launch = replace(decision.launch, asked=decision.launch.asked | {_place_of(notice)})


def note_leaving(decision: Decision, notice: Notice, connection: int) -> None:
    """Note that a worker is terminating; its ranks have some seconds to save."""
    launch = decision.launch
    worker = notice["worker"]
    seconds = notice["seconds"]
    if worker not in launch.terminating:
        decision.log(f"{worker} is terminating: its ranks have {seconds:.0f} s to save")
    terminating = {**launch.terminating, worker: decision.now + seconds}
    decision.launch = replace(
        decision.launch, terminating=terminating, asked=launch.asked | {_place_of(notice)}
    )


def release_ended(decision: Decision) -> None:
    """Allow ranks to report their end when the scripts of all asked ranks have ended."""
    launch = decision.launch
    if launch.waiting and not launch.is_asking and launch.asked <= launch.ended:
        decision.add_effects(ReleaseRanks(launch.waiting))
        decision.launch = replace(decision.launch, waiting=())


def _place_of(notice: Notice) -> tuple[str, int]:
    return notice["worker"], notice["rank"]


def _starts_ranks_itself(decision: Decision) -> bool:
    """Return whether a command may start ranks repeatedly, as for each call of hvdchart.launch."""
    return decision.state.run.mode == "custom"


KINDS = {
    STOPPED: note_stopped,
    DEBUGGED: note_debugged,
    IDLE: note_idle,
    KEPT: note_kept,
    RAISED: note_raised,
    FAILED: note_failed,
    FINISHED: note_finished,
    ENDED: note_ended,
    ASKED: note_asked,
    LEAVING: note_leaving,
}
