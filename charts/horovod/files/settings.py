"""What master and workers agree on: paths, exit codes, and the run as the chart describes it.

Everything in this folder is mounted into the pods and runs on the Python 3 of whichever image is
used: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import functools
import json
import math
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, NamedTuple

import basics
from binding import Binding

FILES, SECRETS = Path(basics.FILES), Path(basics.SECRETS)
GENERATED = Path(basics.GENERATED)
CODE_SOURCE, CODE = Path(basics.CODE_SOURCE), Path(basics.CODE)
TERMINATION_LOG = Path("/dev/termination-log")
LONGEST_TERMINATION_MESSAGE = 4096

BAD_CONFIGURATION = basics.BAD_CONFIGURATION
# A defect of the master itself (EX_SOFTWARE): the Job makes another one.
DEFECT = 70
# What ends the master's pod but not the run: by these the Job makes another master.
LOST_MASTER = (DEFECT, 128 + signal.SIGKILL, 128 + signal.SIGTERM)

_START = time.monotonic()


class RunError(Exception):
    """The run cannot go on, for the reason in the message. Another attempt may help."""

    exit_code = 1


class ConfigurationError(RunError):
    """The run cannot go on, and another attempt cannot help."""

    exit_code = BAD_CONFIGURATION


class HostsTimeoutError(RunError):
    """Hosts are missing, and none came in a whole time-out. No other attempt waits once more."""


class InterruptedRunError(RunError):
    """The master was asked to end. Its Job may make another one."""

    exit_code = 128 + signal.SIGTERM


class LaunchError(RunError):
    """The launcher failed. Its exit code becomes the master's: a rank may have chosen it.

    `repeats` is what is sure to happen again, on whichever rank; empty where nothing is.
    """

    def __init__(self, message: str, exit_code: int, repeats: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.repeats = repeats


class LostHostError(LaunchError):
    """Hosts went away while they had ranks. That says nothing about the script."""


class WorkerLeftError(LaunchError):
    """The attempt ended because a worker was asked to leave, which does not count as a failure."""


class NotANumberError(LaunchError):
    """The attempt was ended because the loss that the script reports is not a number."""

    def __init__(self) -> None:
        super().__init__("the loss is NaN (launch.failOnNaN)", 1, repeats="NaN")


def log(message: str) -> None:
    """Print one line; the prefix distinguishes it from the ranks' output."""
    print(f"[hvd +{time.monotonic() - _START:.1f}s] {message}", flush=True)


def report_failure(error: RunError) -> int:
    """Write an error to the log and the pod's termination message, and return its exit code."""
    print(f"[hvd] error: {error}", file=sys.stderr, flush=True)
    try:
        # Of a longer message, the kubelet would keep the end.
        TERMINATION_LOG.write_bytes(f"{error}\n".encode()[:LONGEST_TERMINATION_MESSAGE])
    except OSError as problem:
        # Outside a pod, or where the platform does not offer the file. The log has the error.
        log(f"cannot write the termination message: {problem}")
    return error.exit_code


def report_end(problem: RunError | None) -> int:
    """Return the master's exit code: that of the ranks where the Job may have it.

    The log's last line names the problem, for whoever reads the end only.
    """
    code = problem.exit_code if problem else 0
    if code in LOST_MASTER and not isinstance(problem, InterruptedRunError):
        code = 1
    if problem:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        log(f"ended at {now} with exit code {code}: {' '.join(str(problem).split())}")
    return code


@dataclass(frozen=True)
class Host:
    """A worker: `name` is its pod's name, `address` the host name that the launcher uses."""

    name: str
    address: str
    slots: int
    stateful_set: str
    revision: str
    # Beyond the number to start with: a spare, or one that an elastic run uses if it is there.
    optional: bool = False


class Pod(NamedTuple):
    """Where a host is at a moment. DNS tells neither the pod's `uid` nor its `node`."""

    address: str
    uid: str = ""
    node: str = ""


@dataclass(frozen=True)
class Run:
    """The run, as the chart's template `horovod.run` describes it.

    `id` is a hash of the values that decide what is trained, `settings` of those that decide what
    runs and where.
    """

    id: str
    settings: str
    hosts: list[Host]
    stateful_sets: list[str]
    service: str
    worker_selector: str
    args: list[str]
    mode: str
    options: list[str]
    hosts_timeout: float
    interface: str
    ssh_port: int
    cleanup: str
    record: str
    api: bool
    min_ranks: int
    max_ranks: int
    binding: Binding
    transport: str
    retries: int
    # Seconds after which a host that is silent is lost; 0: never.
    lost_after: float
    # The version of the user's code; empty when the image has the code.
    code: str
    # Whether the workers install what requirements.txt beside it asks for.
    requirements: bool
    # Seconds after which a rank that the others wait for ends the attempt; 0 for never.
    stall_timeout: float
    fail_on_nan: bool
    # Seconds that the master has to end when it is asked to.
    grace: float
    # The records of the nodes that have the data, by the name of the StatefulSet (files/staged.py).
    staged: Mapping[str, str]
    # Seconds that storing the results may take; 0 when there is nothing to store.
    results_within: float
    # Whether the results of a run that failed are stored, too.
    results_on_failure: bool
    # Hosts are waited for no longer, by time.monotonic().
    wait_until: float = math.inf
    # The master was started again after it had trained.
    resumed: bool = False

    @property
    def ranks(self) -> int:
        """The number of ranks to start with: the slots of all hosts that are not optional."""
        return sum(host.slots for host in self.hosts if not host.optional)

    @property
    def ranks_to_start(self) -> int:
        """The number of ranks without which the run does not start.

        An elastic run that was training already goes on with what is left.
        """
        return self.min_ranks if self.elastic and self.resumed else self.ranks

    @functools.cached_property
    def needed_workers(self) -> dict[str, int]:
        """How many workers the ranks start on, by the name of the StatefulSet."""
        return self._count_workers(with_optional=False)

    @functools.cached_property
    def initial_workers(self) -> dict[str, int]:
        """How many workers are created to start with, spares among them."""
        return self._count_workers(with_optional=not self.elastic)

    def _count_workers(self, with_optional: bool) -> dict[str, int]:
        hosts = (host for host in self.hosts if with_optional or not host.optional)
        found = Counter(host.stateful_set for host in hosts)
        return {name: found[name] for name in self.stateful_sets}

    @property
    def elastic(self) -> bool:
        """Whether hosts may come and go during the run."""
        return self.mode == "elastic"


def parse_run(text: str) -> Run:
    """Parse the JSON that the chart passes to the master in HVD_RUN."""
    document: dict[str, Any] = json.loads(text)
    service, results = document["service"], document.get("results", {})
    hosts = [
        Host(
            name=f"{group['statefulSet']}-{ordinal}",
            address=f"{group['statefulSet']}-{ordinal}.{service}",
            slots=group["slots"],
            stateful_set=group["statefulSet"],
            revision=group["revision"],
            optional=ordinal >= group["number"],
        )
        for group in document["groups"]
        for ordinal in range(group["maximum"])
    ]
    return Run(
        id=document["id"],
        settings=document["settings"],
        hosts=hosts,
        stateful_sets=[group["statefulSet"] for group in document["groups"]],
        service=service,
        worker_selector=document["workerSelector"],
        args=document["args"],
        mode=document["mode"],
        options=document["options"],
        hosts_timeout=float(document["hostsTimeoutSeconds"]),
        interface=document["interface"],
        ssh_port=document["sshPort"],
        cleanup=document["cleanup"],
        min_ranks=document["minRanks"],
        max_ranks=document["maxRanks"],
        record=document["record"],
        api=document["api"],
        binding=Binding(
            document["binding"]["to"],
            document["binding"]["coresPerRank"],
            document["binding"]["ranksPerSocket"],
        ),
        transport=document["transport"],
        # Without access to the API. Otherwise the Job says it.
        retries=document.get("retries", 0),
        lost_after=float(document.get("lostAfterSeconds", 0)),
        code=document["code"],
        requirements=document["requirements"],
        stall_timeout=float(document["stallTimeoutSeconds"]),
        fail_on_nan=document["failOnNaN"],
        grace=float(document["gracePeriodSeconds"]),
        staged={group["statefulSet"]: group.get("staged", "") for group in document["groups"]},
        results_within=float(results.get("timeoutSeconds", 0)),
        results_on_failure=results.get("onFailure", False),
    )
