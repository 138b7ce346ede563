"""Formats a run's status and events for a terminal. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from hvd_pods.shared.untrusted import one_line
from hvdchart.quantity import pluralize
from hvdchart.run.state.progress import duration_text
from hvdchart.run.state.release import Object, event_time
from hvdchart.run.state.stalls import seconds_of
from hvdchart.run.state.status import Status
from hvdchart.text import format_table

# Characters of a reason: the maximum length of a container's last message.
MAX_REASON_CHARACTERS = 4096
# More pods than fit on a screen.
_MAX_SHOWN_PODS = 30
_RUNNING = "Running"


def status_report(status: Status, namespace: str, now: float | None = None) -> Iterator[str]:
    """Yield the state, the reason, what to do, the pods, and the next command, in lines.

    With the current time in seconds since 1970, also return how long the run has lasted.
    """
    yield _head(status, now)
    if status.progress:
        yield f"progress: {status.progress.text(is_over=status.over or status.stall is not None)}"
    if status.stall:
        text = one_line(status.stall.text(), MAX_REASON_CHARACTERS)
        yield f"stalled{_describe_wait(status, now)}: {text}"
    if status.warning:
        yield f"warning: {status.warning}"
    if status.reason:
        yield f"why: {one_line(status.reason, MAX_REASON_CHARACTERS)}"
    if status.remedy:
        yield f"what to do: {status.remedy}"
    yield from _pod_lines(status)
    target = f"{status.name} -n {namespace}"
    if status.workers_left:
        yield f"its workers are still there; to remove them: {removal_command(status, namespace)}"
    if status.failed_rank is not None:
        yield f"next: hvdchart logs {target} --rank {status.failed_rank}"
    elif status.job:
        yield f"next: hvdchart {'events' if status.reason else 'logs'} {target}"


def _head(status: Status, now: float | None) -> str:
    """Return the state, its duration, and the number of workers."""
    text = f"{status.name}: {status.state}"
    seconds = None if now is None else status.seconds(now)
    if seconds is not None:
        text += f" {'after' if status.over else 'for'} {duration_text(seconds)}"
    if status.is_active and status.state != "finishing":
        text += f", {status.workers_ready} of {status.workers_wanted} workers up"
        if status.spares_wanted:
            text += f", {status.spares_ready} of {pluralize(status.spares_wanted, 'spare')}"
    if status.attempt > 1:
        text += f", attempt {status.attempt} of {status.attempts}"
    return text


def _describe_wait(status: Status, now: float | None) -> str:
    """Explain how long ranks have waited for a stalled one; empty if the time is unknown."""
    if now is None or status.stall is None:
        return ""
    # The detection takes a while, and the record is a few seconds old.
    seconds = max(0.0, now - status.stall.since)
    text = f" for at least {duration_text(seconds)}"
    if status.progress:
        idle = max(seconds, status.progress.idle_seconds)
        text += f", without a step for {duration_text(idle)}"
    return text


def _pod_lines(status: Status) -> Iterator[str]:
    """Yield a line for each pod; of many pods, only for those with another state than running."""
    pods = status.pods
    shown = pods
    if len(pods) > _MAX_SHOWN_PODS:
        shown = tuple(pod for pod in pods if pod.state != _RUNNING or pod.restarts or pod.problem)
    width = max((len(pod.name) for pod in shown), default=0)
    for pod in shown:
        node = f" on {pod.node}" if pod.node else ""
        restarts = f", restarted {pod.restarts} times" if pod.restarts else ""
        yield f"  {pod.name:<{width}}  {pod.state}{node}{restarts}"
    if len(shown) < len(pods):
        other = "other " if shown else ""
        yield f"  {len(pods) - len(shown)} {other}pods run; -o json lists all"


def removal_command(status: Status, namespace: str) -> str:
    """Return the command that removes the workers of a run that is not active."""
    how = "stop" if status.over else "undeploy"
    return f"hvdchart {how} {status.name} -n {namespace}"


def list_report(runs: Sequence[tuple[str, Status]], now: float | None = None) -> list[str]:
    """Return a table of runs, each with its namespace: one line each, of any width.

    Workers are ready/wanted, with a plus before those of the spares; an attempt is a number/the
    maximum. `now` is in seconds since the epoch, by this machine's clock.
    """
    head = ("NAMESPACE", "NAME", "STATE", "WORKERS", "ATTEMPT", "AGE", "DURATION", "STEP", "LOSS")
    rows = [(*head, "REASON")]
    now = time.time() if now is None else now
    for namespace, run in runs:
        workers = f"{run.workers_ready}/{run.workers_wanted}"
        if run.spares_wanted:
            workers += f"+{run.spares_ready}/{run.spares_wanted}"
        attempt = f"{run.attempt}/{run.attempts}" if run.job else "-"
        began = seconds_of(run.started)
        age = duration_text(max(now - began, 0)) if began else "-"
        lasted = run.seconds(now)
        took = "-" if lasted is None else duration_text(lasted)
        step = "-"
        loss = "-"
        if run.progress:
            step = str(run.progress.step)
            step += "" if run.progress.steps is None else f"/{run.progress.steps}"
            loss = run.progress.loss_text or "-"
        reason = one_line(run.reason, MAX_REASON_CHARACTERS)
        shown = (workers, attempt, age, took, step, loss, reason)
        rows.append((namespace, run.name, run.state, *shown))
    return format_table(rows)


def event_lines(events: Iterable[Object]) -> Iterator[str]:
    """Yield one line for each event: time, type, object, reason and message."""
    for event in events:
        subject = event.get("involvedObject", {})
        count = int(event.get("count") or 1)
        times = f" ({count} times)" if count > 1 else ""
        message = " ".join(str(event.get("message", "")).split())
        yield (
            f"{event_time(event)} {event.get('type', '')} {subject.get('kind', '')}/"
            f"{subject.get('name', '')} {event.get('reason', '')}: {message}{times}"
        )
