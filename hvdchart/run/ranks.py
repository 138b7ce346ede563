"""Which rank is in which pod, and which lines of the launcher's output are a rank's. Pure.

The chart describes the run to its master in the variable HVD_RUN of the Job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from hvd_pods.common.run import Run, parse_run
from hvdchart.errors import ClusterError
from hvdchart.run.release import Object

# What launchers put before a rank's line: horovodrun `[1]<stdout>:`, Open MPI `[1,1]<stdout>:` with
# --tag-output, Intel MPI and MPICH `[1] ` with -prepend-rank.
_TAG = re.compile(r"^\[(?:[^][]*,)?(\d+)\](?:<std(?:out|err)>: ?| )")
# The line with which hvd_pods/rank/start.py begins each rank.
_OWN = re.compile(r"^\[hvd\] rank (\d+) of ")
_TAGGING = {"tag-output", "prepend-rank", "l"}


def run_of(job: Object) -> Run:
    """What the chart tells the master about the run. Raises ClusterError for another chart."""
    for container in job["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == "HVD_RUN":
                # Kubernetes turns $$ into $ when it starts the container.
                with suppress(KeyError):
                    return parse_run(variable["value"].replace("$$", "$"))
    raise ClusterError(
        f"job {job['metadata']['name']} is of another version of the chart: deploy it again"
    )


def pods_of_ranks(run: Run, record: Mapping[str, str]) -> Iterator[str]:
    """The pod of each rank that the run starts with, from rank 0: launchers fill host by host.

    With spares, the record names the workers that have ranks in the present attempt.
    """
    used = {
        stateful_set: {f"{stateful_set}-{ordinal}" for ordinal in _ordinals(text)}
        for stateful_set, text in json.loads(record.get("hosts") or "{}").items()
    }
    for host in run.hosts:
        named = used.get(host.stateful_set)
        if (not host.optional) if named is None else host.name in named:
            yield from [host.name] * host.slots


def _ordinals(text: str) -> Iterator[int]:
    """The numbers in a list of ranges: 0-2,5."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def pod_of(run: Run, target: str, record: Mapping[str, str]) -> str:
    """The pod that a person means by a rank's number, `worker-N`, `master` or a pod's name.

    Raises ClusterError when the run has none of that name; `master` is returned as it is.
    """
    pods = list(pods_of_ranks(run, record))
    if target == "master":
        return target
    if target.isdecimal() and int(target) < len(pods):
        return pods[int(target)]
    for pod in (host.name for host in run.hosts):
        if pod == target or pod.endswith(f"-{target}"):
            return pod
    raise ClusterError(
        f"the run has no {target!r}: name a rank from 0 to {len(pods) - 1}, master, or a worker "
        f"such as {pods[0]}"
    )


def check_tagged(run: Run) -> None:
    """Raise ClusterError when the launcher does not say which rank printed a line."""
    options = {str(option).lstrip("-") for option in run.options}
    if run.mode not in ("horovodrun", "elastic") and not options & _TAGGING:
        raise ClusterError(
            "mpirun does not say which rank printed a line: deploy with the launcher's option "
            "--tag-output (Open MPI) or -prepend-rank (Intel MPI, MPICH), in a spec "
            "launch: {options: [--tag-output]}"
        )


def lines_of_rank(lines: Iterable[str], rank: int) -> Iterator[str]:
    """The lines of one rank, without what the launcher puts before each."""
    for line in lines:
        tag = _TAG.match(line)
        text = line[tag.end() :] if tag else line
        own = _OWN.match(text)
        if (tag and int(tag[1]) == rank) or (own and int(own[1]) == rank):
            yield text
