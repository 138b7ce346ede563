"""How messages and the record name workers: as ranges."""

from __future__ import annotations

import json
from itertools import groupby, islice
from typing import Collection, Iterable, Mapping, Sequence

from hvd_pods.shared.ranges import format_ranges, parse_pod_names
from hvd_pods.shared.run import Run, Worker

# Limits of a report: groups of workers, characters of a reason, ranges of workers in a group.
MAX_GROUPS = 8
MAX_REASON_CHARACTERS = 300
MAX_RANGES = 8


def describe_reasons(reasons: Mapping[Worker, str]) -> list[str]:
    """Return one line for all workers with the same reason, short enough to read.

    A last line counts the workers with further reasons. The kubelet keeps the last 4096 bytes of a
    termination message.
    """
    workers: dict[str, list[Worker]] = {}
    for worker, reason in reasons.items():
        workers.setdefault(reason, []).append(worker)
    lines = [
        f"{format_workers(same)}: {reason[:MAX_REASON_CHARACTERS]}"
        for reason, same in list(workers.items())[:MAX_GROUPS]
    ]
    others = sum(len(same) for same in list(workers.values())[MAX_GROUPS:])
    return [*lines, f"and {others} more, for other reasons"] if others else lines


def describe_loss(lost: Mapping[Worker, str]) -> str:
    """Name the lost workers, and the errors of attempts to reach them."""
    return "; ".join(f"lost {line}" for line in describe_reasons(lost))


def describe_spares(run: Run, unused: int) -> str:
    """Describe how many of the run's spares answer and are unused; empty without spares."""
    number = sum(run.initial_workers.values()) - sum(run.needed_workers.values())
    return f", and {unused} of {number} spares" if number else ""


def format_used_workers(run: Run, chosen: Collection[str]) -> str:
    """Return the ordinals of the workers to use as JSON, by StatefulSet.

    Empty if the workers are always the same, without spares and a minimum.
    """
    if run.initial_workers == run.needed_workers and not run.is_elastic:
        return ""
    used = (worker for worker in run.workers if worker.name in chosen)
    groups = groupby(used, key=lambda worker: worker.stateful_set)
    return json.dumps({name: ",".join(format_ordinals(same)) for name, same in groups})


def parse_used_workers(run: Run, text: str) -> list[Worker]:
    """Parse the text of `format_used_workers`; any other text means the initial workers."""
    try:
        groups = [f"{name}:{ordinals}" for name, ordinals in json.loads(text).items()]
        names = set(islice(parse_pod_names(" ".join(groups)), len(run.workers) + 1))
    except (ValueError, TypeError, AttributeError, RecursionError):
        names = set()
    return [worker for worker in run.workers if worker.name in names] or [
        worker for worker in run.workers if not worker.is_spare
    ]


def format_workers(workers: Sequence[Worker]) -> str:
    """Name workers as ranges: `hvd-worker-[0-31,40]`, with their number if it is not obvious."""
    parts = []
    for name, same in groupby(workers, key=lambda worker: worker.stateful_set):
        ordinals = format_ordinals(same)
        shown = ",".join(ordinals[:MAX_RANGES])
        shown += ",..." if len(ordinals) > MAX_RANGES else ""
        parts.append(f"{name}-{shown}" if shown.isdecimal() else f"{name}-[{shown}]")
    more = " and other groups" if len(parts) > MAX_RANGES else ""
    number = f" ({len(workers)} workers)" if len(workers) > 1 else ""
    return ", ".join(parts[:MAX_RANGES]) + more + number


def format_ordinals(workers: Iterable[Worker]) -> list[str]:
    """Return the ordinals of a StatefulSet's workers as ranges: `0-31` and `40`."""
    return format_ranges(int(worker.name.rpartition("-")[2]) for worker in workers)


def find_worker(rank: int, workers: Sequence[Worker]) -> Worker | None:
    """Find the worker of a rank, None for a rank that they have no slot for.

    Launchers fill workers in their order.
    """
    first = 0
    for worker in workers:
        first += worker.slots
        if rank < first:
            return worker
    return None
