"""Build the view of a run from its objects, its pods' usage and its log. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from hvd_pods.shared.record import read_progress
from hvd_pods.shared.run_events import BY_REASON, Kind
from hvd_pods.shared.untrusted import one_line
from hvdchart.run.follow.lines import plain_lines
from hvdchart.run.follow.logs import FAILED_PROBE
from hvdchart.run.inside.top import Usage
from hvdchart.run.state.release import Object, event_time, is_event_of
from hvdchart.run.state.stalls import seconds_of
from hvdchart.run.state.status import PodStatus, Status
from hvdchart.run.state.view import RunView
from hvdchart.watch.view_model import Mark, Period, Row, Span, View

# The maximum number of a view's rows, marks and log lines, and of characters of a mark, a line, a
# reason and a part of a stall.
MAX_ROWS = 256
MAX_MARKS = 120
MAX_LINES = 200
_MAX_MARK_CHARACTERS = 300
_MAX_VIEW_LINE_CHARACTERS = 500
_MAX_VIEW_REASON_CHARACTERS = 2000
_MAX_STALL_CHARACTERS = 200
# A larger step or memory value is ignored.
_MAX_SHOWN_NUMBER = 10**15


def build_view(
    run: RunView,
    namespace: str,
    now: float,
    *,
    usages: Sequence[Usage] = (),
    lines: Iterable[str] = (),
    usage_problem: str = "",
    mask: Callable[[str], str] = str,
) -> View:
    """Return the view of a run at a moment; `lines` are the last ones of its master's log.

    Texts other than `lines` go through `mask` before they are cut: part of a secret is not masked.
    """
    status = run.status

    def shown(text: str, longest: int) -> str:
        return one_line(mask(text), longest)

    rows = list(_rows(run.ranks, status, usages))
    marks = tuple(
        replace(mark, text=shown(run.rephrase(mark.text), _MAX_MARK_CHARACTERS))
        for mark in _marks(run)
    )
    stall = status.stall
    if stall:
        behaviour, place = (
            shown(text, _MAX_STALL_CHARACTERS) for text in (stall.what, stall.place)
        )
        stall = replace(stall, what=behaviour, place=place)
    ended = seconds_of(status.ended) or None
    return View(
        name=one_line(status.name),
        namespace=one_line(namespace),
        state=status.state,
        reason=shown(status.reason, _MAX_VIEW_REASON_CHARACTERS),
        remedy=shown(status.remedy, _MAX_VIEW_REASON_CHARACTERS),
        now=now,
        started=seconds_of(status.started) or None,
        ended=ended,
        attempt=status.attempt,
        attempts=status.attempts,
        workers_ready=status.workers_ready,
        workers_wanted=status.workers_wanted,
        progress=status.progress,
        losses=read_progress(run.record).curve,
        rows=tuple(rows[:MAX_ROWS]),
        more_rows=len(rows[MAX_ROWS:]),
        marks=marks,
        spans=tuple(_spans(marks, ended or now)),
        stall=stall,
        log=tuple(
            plain_lines((line[:_MAX_VIEW_LINE_CHARACTERS] for line in lines), run)[-MAX_LINES:]
        ),
        usage_problem=one_line(usage_problem) if not status.over else "",
    )


def _rows(ranks: Sequence[str], status: Status, usages: Sequence[Usage]) -> Iterator[Row]:
    """Yield a row for each rank, in order, and then for each other pod of the run."""
    pods = {pod.name: pod for pod in status.pods}
    used = {usage.pod: usage for usage in usages}
    steps = {rank: values for usage in usages for rank, values in usage.ranks.items()}
    seen: set[str] = set()
    for rank, name in enumerate(ranks):
        pod = pods.get(name)
        usage = used.get(name) if name not in seen else None
        seen.add(name)
        is_stalled = status.stall is not None and status.stall.rank == rank
        progress = steps.get(rank, {})
        row = Row(
            rank=rank,
            pod=one_line(name),
            node=one_line(pod.node) if pod else "",
            state="Stalled" if is_stalled else _state(pod, status),
            step=_to_int(progress.get("step")),
            rate=_finite(progress.get("samples_per_second")),
        )
        yield _add_usage(row, usage)
    for pod in status.pods:
        if pod.name not in seen:
            row = Row(None, one_line(pod.name), one_line(pod.node), _state(pod, status))
            yield _add_usage(row, used.get(pod.name))


def _add_usage(row: Row, usage: Usage | None) -> Row:
    """Return a row with the usage of its pod, as far as that is known."""
    if usage is None:
        return row
    shares = usage.gpu_shares
    used, size = map(_to_int, usage.gpu_memory or (None, None))
    return replace(
        row,
        cpus=usage.cpus,
        memory=_to_int(usage.memory),
        gpu_shares=shares if shares and all(0 <= share <= 1 for share in shares) else None,
        gpu_memory=None if used is None or size is None else (used, size),
    )


def _state(pod: PodStatus | None, status: Status) -> str:
    """Return the state of a pod in a word; the state of a deleted pod depends on the run."""
    if pod is not None:
        return one_line(pod.state, 60)
    return "Ended" if status.over or status.state == "finishing" else "Missing"


def _to_int(value: float | None) -> int | None:
    return None if value is None or not abs(value) < _MAX_SHOWN_NUMBER else int(value)


def _finite(value: float | None) -> float | None:
    return None if value is None or not abs(value) < _MAX_SHOWN_NUMBER else value


def _marks(run: RunView) -> tuple[Mark, ...]:
    """Return the marks of the newest run, in order; if there are too many, leave out the middle."""
    status = run.status
    marks = [*_marks_of_events(run.release.events, run.job)] if run.job else []
    started = seconds_of(status.started)
    ended = seconds_of(status.ended)
    if started:
        marks.append(Mark(started, "stage", "created"))
    kind: Kind = "end" if status.state == "finished" else "fault"
    last = next((mark for mark in reversed(marks) if mark.kind not in ("stage", "warning")), None)
    if ended and (last is None or last.kind != kind):
        # Kubernetes deletes events after an hour.
        marks.append(Mark(ended, kind, status.reason or status.state))
    marks.sort(key=lambda mark: mark.at)
    # The master reports a lost worker at once, and again when the attempt ends because of it.
    marks = [
        mark
        for before, mark in pairwise([None, *marks])
        if mark and not (before and (before.kind, before.text) == (mark.kind, mark.text))
    ]
    half = MAX_MARKS // 2
    return tuple(marks if len(marks) <= MAX_MARKS else marks[:half] + marks[-half:])


def _marks_of_events(events: Iterable[Object], job: Object) -> Iterator[Mark]:
    created = seconds_of(str(job["metadata"].get("creationTimestamp") or ""))
    for event in events:
        at = seconds_of(event_time(event))
        reason = str(event.get("reason", ""))
        message = str(event.get("message", ""))
        is_warning = event.get("type") == "Warning" and reason != FAILED_PROBE
        if not at or at < created:
            continue
        if is_event_of(event, job) and reason in BY_REASON:
            yield Mark(at, BY_REASON[reason].kind, message)
        elif is_warning:
            subject = str(event.get("involvedObject", {}).get("name", ""))
            yield Mark(at, "warning", f"{subject}: {reason}: {message}")


def _spans(marks: Sequence[Mark], until: float) -> Iterator[Span]:
    """Yield the time line: until the ranks start, while they run, and time lost in between."""
    period: Period = "waiting"
    begin = math.nan
    attempt = 0
    for mark in marks:
        after: Period | None = None
        if mark.kind == "attempt":
            after = "training"
        elif mark.kind == "fault" and period == "training":
            after = "lost"
        elif mark.kind == "end":
            after = "ending"
        if math.isnan(begin):
            begin = mark.at
        if after is not None:
            if mark.at > begin:
                yield Span(begin, mark.at, period, attempt)
            period = after
            begin = mark.at
        attempt += mark.kind == "attempt"
    if until > begin:
        yield Span(begin, until, period, attempt)
