"""Which rank is in which pod, and which lines of the launcher's output are a rank's. Pure.

The chart describes the run to its master in the variable HVD_RUN of the Job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from hvd_pods.common import contract
from hvd_pods.common.hostile import MOST_COUNTED, parse_count
from hvd_pods.common.launcher_options import LAUNCH, tags_output
from hvd_pods.common.launcher_output import split_tag
from hvd_pods.common.ranges import parse_ranges
from hvd_pods.common.ranks_program import TAG_OUTPUT
from hvd_pods.common.record import RecordKey
from hvd_pods.common.run import Run, parse_run
from hvdchart.errors import ClusterError
from hvdchart.run.state.release import Object

# What Intel MPI and MPICH put before a rank's line with -prepend-rank. Scripts may do so, too.
_PREPENDED = re.compile(r"^\[(\d{1,7})\] ")
# How a cause names the rank that has failed (hvd_pods/master/causes.py).
_FAILED = re.compile(r"\brank (\d{1,7})(?: on \S+)?: ")
# The line with which hvd_pods/rank/start.py begins each rank.
_OWN = re.compile(r"^\[hvd\] rank (\d{1,7}) of ")


def run_of(job: Object) -> Run:
    """What the chart tells the master about the run.

    Raises ClusterError for the Job of another version of the chart, and for one of more than a
    million ranks.
    """
    for container in job["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == contract.RUN:
                # Kubernetes turns $$ into $ when it starts the container.
                text = str(variable.get("value")).replace("$$", "$")
                with suppress(KeyError, ValueError, TypeError, AttributeError, RecursionError):
                    groups = json.loads(text)["groups"]
                    ranks = sum(each["maximum"] * max(each["slots"], 1) for each in groups)
                    # More could not be listed.
                    if ranks <= MOST_COUNTED:
                        return parse_run(text)
    raise ClusterError(
        f"job {job['metadata']['name']} is of another version of the chart: deploy it again"
    )


def pods_of_ranks(run: Run, record: Mapping[str, str]) -> Iterator[str]:
    """The pod of each rank that the run starts with, from rank 0: launchers fill worker by worker.

    With spares or a minimum, the record names the workers that have ranks in the present attempt.
    """
    used = _used(record)
    for worker in run.workers:
        named = used.get(worker.stateful_set)
        if named is None:
            has_ranks = not worker.is_spare
        else:
            ordinal = int(worker.name.rpartition("-")[2])
            has_ranks = any(ordinal in part for part in named)
        if has_ranks:
            yield from [worker.name] * worker.slots


def count_used(record: Mapping[str, str]) -> int:
    """How many workers have ranks in the present attempt; 0 where the record names none."""
    return sum(len(part) for parts in _used(record).values() for part in parts)


def _used(record: Mapping[str, str]) -> dict[str, list[range]]:
    """The ordinals of the workers with ranks, by StatefulSet."""
    try:
        return {
            name: list(parse_ranges(text))
            for name, text in json.loads(record[RecordKey.WORKERS]).items()
        }
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        # There is no record yet, or somebody has changed it.
        return {}


def pod_of(run: Run, target: str, record: Mapping[str, str]) -> str:
    """The pod that a rank's number, `worker-N` or a pod's name means; "master" stays as it is.

    Raises ClusterError for a text that is none of these.
    """
    pods = list(pods_of_ranks(run, record))
    if target == "master":
        return target
    rank = parse_count(target, len(pods) - 1)
    if rank is not None:
        return pods[rank]
    for pod in (worker.name for worker in run.workers):
        if pod == target or pod.endswith(f"-{target}"):
            return pod
    raise ClusterError(
        f"the run has no {target!r}: name a rank from 0 to {len(pods) - 1}, master, or a worker "
        f"such as {run.workers[0].name}"
    )


def is_tagged(run: Run, stateful_sets: Iterable[Object]) -> bool:
    """Whether the launcher says which rank printed a line."""
    is_charts = run.mode != "custom" or LAUNCH in run.args
    return tags_output(run.options) or (is_charts and any(map(_asks_for_tags, stateful_sets)))


def check_tagged(run: Run, stateful_sets: Iterable[Object]) -> None:
    """Raise ClusterError when the launcher does not say which rank printed a line."""
    if is_tagged(run, stateful_sets):
        return
    if run.mode == "custom":
        remedy = "start the ranks with an option of your launcher for that"
    else:
        remedy = f'in a spec train: {{env: {{{TAG_OUTPUT}: "1"}}}}, as `hvdchart run` does it'
    raise ClusterError(f"the output of this run does not say which rank printed a line: {remedy}")


def failed_rank(reason: str) -> int | None:
    """The rank that the reason of a failed run names first; None where it names none."""
    found = _FAILED.search(reason)
    return int(found[1]) if found else None


def split_line(line: str) -> tuple[int | None, str]:
    """The rank that whatever a launcher puts before a line names, or None; and the line itself."""
    rank, text = split_tag(line)
    prepended = _PREPENDED.match(line) if rank is None else None
    return (int(prepended[1]), line[prepended.end() :]) if prepended else (rank, text)


def begins_rank(line: str) -> bool:
    """Whether a line is the one with which a rank begins, and not the script's."""
    return _OWN.match(split_line(line)[1]) is not None


def _asks_for_tags(stateful_set: Object) -> bool:
    """Whether lines are to be tagged (hvd_pods/common/ranks_program.py)."""
    pod = stateful_set["spec"].get("template", {}).get("spec", {})
    variables = [each for one in pod.get("containers") or [] for each in one.get("env") or []]
    return any(each.get("name") == TAG_OUTPUT and each.get("value") for each in variables)


def lines_of_rank(lines: Iterable[str], rank: int) -> Iterator[str]:
    """The lines of one rank, without what the launcher puts before each.

    A launcher that does not tag lines leaves the one with which each rank begins.
    """
    for line in lines:
        tagged, text = split_line(line)
        own = _OWN.match(text)
        if rank == tagged or (own and rank == int(own[1])):
            yield text
