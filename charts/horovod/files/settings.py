"""What master and workers agree on: paths, exit codes, and the run as the chart describes it.

Everything in this folder is mounted into the pods and runs on the Python 3 of whatever image is
used: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Where the chart mounts this folder. Not __file__: that is resolved to a name of one pod only.
FILES = Path("/horovod/bin")
SECRETS = Path("/horovod/ssh")
# A memory volume of the pod. Scripts written for older charts read hostfile from here.
GENERATED = Path("/horovod/generated")
TERMINATION_LOG = Path("/dev/termination-log")

# The Job gives up at once on this code (sysexits.h calls it EX_CONFIG): a retry cannot help.
BAD_CONFIGURATION = 78

_START = time.monotonic()


class RunError(Exception):
    """The run cannot go on; the message tells a person why. A retry may help."""

    exit_code = 1


class ConfigurationError(RunError):
    """As RunError, but trying again cannot help."""

    exit_code = BAD_CONFIGURATION


class InterruptedRunError(RunError):
    """The master was asked to end before it launched anything."""

    exit_code = 128 + signal.SIGTERM


class LaunchError(RunError):
    """The launcher failed; its exit code goes on: a rank's verdict may be in it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def log(message: str) -> None:
    """Print one line of the launcher's own, told apart from the ranks' output by its prefix."""
    print(f"[hvd +{time.monotonic() - _START:.1f}s] {message}", flush=True)


def report_failure(error: RunError) -> int:
    """Report an error where a person looks for it: the log and the pod's termination message."""
    print(f"[hvd] error: {error}", file=sys.stderr, flush=True)
    try:
        TERMINATION_LOG.write_text(f"{error}\n")
    except OSError as problem:
        # Outside a pod, or where the platform does not offer the file: the log has it already.
        log(f"no termination message was left: {problem}")
    return error.exit_code


@dataclass(frozen=True)
class Host:
    """One worker pod: `name` is the pod's, `address` the name that the ranks' launcher uses."""

    name: str
    address: str
    slots: int
    stateful_set: str
    revision: str
    # Beyond the number asked for: an elastic run uses it when it is there.
    optional: bool = False


@dataclass(frozen=True)
class Binding:
    """What a rank is bound to: `to` is none, core or socket; 0 where a number is not given.

    Bound to cores, ranks take so many each, one rank after the other. With `ranks_per_socket`, so
    many ranks share each socket, and the next one begins the next socket.
    """

    to: str = "none"
    cores_per_rank: int = 0
    ranks_per_socket: int = 0


@dataclass(frozen=True)
class Run:
    """The run, as the chart's template `horovod.run` writes it."""

    hosts: list[Host]
    stateful_sets: list[str]
    service: str
    args: list[str]
    mode: str
    options: list[str]
    hosts_timeout: float
    interface: str
    ssh_port: int
    cleanup: str
    record: str
    api: bool
    min_ranks: int = 0
    max_ranks: int = 0
    binding: Binding = Binding()
    transport: str = ""

    @property
    def ranks(self) -> int:
        """How many ranks the slots of the hosts asked for add up to."""
        return sum(host.slots for host in self.hosts if not host.optional)

    def number(self, stateful_set: str) -> int:
        """How many workers of a StatefulSet the run starts with."""
        own = (host for host in self.hosts if host.stateful_set == stateful_set)
        return sum(1 for host in own if not host.optional)

    @property
    def elastic(self) -> bool:
        """Do hosts come and go while it runs?"""
        return self.mode == "elastic"


def parse_run(text: str) -> Run:
    """Read the JSON that the chart gives the master."""
    document: dict[str, Any] = json.loads(text)
    service = document["service"]
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
        hosts=hosts,
        stateful_sets=[group["statefulSet"] for group in document["groups"]],
        service=service,
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
    )
