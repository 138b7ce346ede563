"""Find the pod of each rank, and each rank's lines in the launcher's output. Pure.

The chart describes the run to its master in the variable HVD_RUN of the Job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from hvd_pods.shared import contract
from hvd_pods.shared.contract import TAG_OUTPUT
from hvd_pods.shared.launcher_options import LAUNCH, tags_output
from hvd_pods.shared.launcher_output import split_tag
from hvd_pods.shared.ranges import parse_ranges
from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.run import Run, parse_run
from hvd_pods.shared.untrusted import MAX_COUNTED, parse_count
from hvdchart.errors import ClusterError
from hvdchart.run.state.release import Object

# The prefix that Intel MPI and MPICH add to a rank's line with -prepend-rank. Scripts may add it,
# too.
_PREPENDED = re.compile(r"^\[(\d{1,7})\] ")
# The text that names the failed rank in a cause (hvd_pods/master/failure_causes.py).
_FAILED_RANK = re.compile(r"\brank (\d{1,7})(?: on \S+)?: ")
# The line that hvd_pods/rank/start.py prints at the start of each rank.
_OWN = re.compile(r"^\[hvd\] rank (\d{1,7}) of ")


def run_of(job: Object) -> Run:
    """Return the chart's description of the run for the master.

    Raises ClusterError for the Job of another version of the chart, and for more than a million
    ranks.
    """
    for text in _run_texts(job):
        with suppress(KeyError, ValueError, TypeError, AttributeError, RecursionError):
            groups = json.loads(text)["groups"]
            ranks = sum(group["maximum"] * max(group["slots"], 1) for group in groups)
            # More ranks could not be listed.
            if ranks <= MAX_COUNTED:
                return parse_run(text)
    raise ClusterError(
        f"job {job['metadata']['name']} is of another version of the chart: deploy it again"
    )


def _run_texts(job: Object) -> Iterator[str]:
    """Yield the values of the variable that describes the run in the containers of a Job."""
    for container in job["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == contract.RUN:
                # Kubernetes turns $$ into $ when it starts the container.
                yield str(variable.get("value")).replace("$$", "$")


def pods_of_ranks(run: Run, record: Mapping[str, str]) -> Iterator[str]:
    """Yield the pod of each rank at the start, from rank 0: launchers fill worker by worker.

    With spares or a minimum, the record lists the workers that have ranks in the current attempt.
    """
    used_ordinals = _find_used_ordinals(record)
    for worker in run.workers:
        ordinals = used_ordinals.get(worker.stateful_set)
        if ordinals is None:
            has_ranks = not worker.is_spare
        else:
            ordinal = int(worker.name.rpartition("-")[2])
            has_ranks = any(ordinal in part for part in ordinals)
        if has_ranks:
            yield from [worker.name] * worker.slots


def count_used(record: Mapping[str, str]) -> int:
    """Return how many workers have ranks in the current attempt; 0 if the record lists none."""
    return sum(len(part) for parts in _find_used_ordinals(record).values() for part in parts)


def _find_used_ordinals(record: Mapping[str, str]) -> dict[str, list[range]]:
    """Return the ordinals of the workers with ranks, by StatefulSet."""
    try:
        return {
            name: list(parse_ranges(text))
            for name, text in json.loads(record[RecordKey.WORKERS]).items()
        }
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        # There is no record yet, or a user has changed it.
        return {}


def pod_of(run: Run, target: str, record: Mapping[str, str]) -> str:
    """Return the pod for a rank's number, `worker-N` or a pod's name; "master" is unchanged.

    Raises ClusterError for any other text.
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
    """Return whether the launcher prints the rank of each line."""
    is_charts = run.mode != "custom" or LAUNCH in run.args
    return tags_output(run.options) or (is_charts and any(map(_asks_for_tags, stateful_sets)))


def check_tagged(run: Run, stateful_sets: Iterable[Object]) -> None:
    """Raise ClusterError if the launcher does not print the rank of each line."""
    if is_tagged(run, stateful_sets):
        return
    if run.mode == "custom":
        remedy = "start the ranks with an option of your launcher for that"
    else:
        remedy = f'in a spec train: {{env: {{{TAG_OUTPUT}: "1"}}}}, as `hvdchart run` does it'
    raise ClusterError(f"the output of this run does not say which rank printed a line: {remedy}")


def failed_rank(reason: str) -> int | None:
    """Return the rank that the reason of a failed run names first; None if it names none."""
    failure = _FAILED_RANK.search(reason)
    return int(failure[1]) if failure else None


def split_line(line: str) -> tuple[int | None, str]:
    """Split a line into its rank (or None), from any launcher's prefix, and the rest."""
    rank, text = split_tag(line)
    prepended = _PREPENDED.match(line) if rank is None else None
    return (int(prepended[1]), line[prepended.end() :]) if prepended else (rank, text)


def begins_rank(line: str) -> bool:
    """Return whether a line marks the start of a rank, and is not a line of the script."""
    return _OWN.match(split_line(line)[1]) is not None


def _asks_for_tags(stateful_set: Object) -> bool:
    """Return whether the chart tags lines with their rank (hvd_pods/pod/ranks_program.py)."""
    pod = stateful_set["spec"].get("template", {}).get("spec", {})
    variables = [
        variable
        for container in pod.get("containers") or []
        for variable in container.get("env") or []
    ]
    return any(
        variable.get("name") == TAG_OUTPUT and variable.get("value") for variable in variables
    )


def lines_of_rank(lines: Iterable[str], rank: int) -> Iterator[str]:
    """Yield the lines of one rank, without the launcher's prefix.

    For a launcher that does not tag lines, return only the line at the start of the rank.
    """
    for line in lines:
        tagged, text = split_line(line)
        beginning = _OWN.match(text)
        if rank == tagged or (beginning and rank == int(beginning[1])):
            yield text
