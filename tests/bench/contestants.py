"""The contestants of the benchmarks: this chart, and Kubeflow's MPI Operator in its two modes. Each
starts a run of two ranks on the local cluster, on two workers of the same image.
"""

from __future__ import annotations

import argparse
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from devtools.images.build import build
from devtools.localkube import cluster
from devtools.localkube.images import load
from tests.bench import mpi_operator
from tests.e2e.cluster import CHART, Namespace, Values

NAME = "bench"
# More failures than a benchmark causes.
RETRIES = 1000
One = TypeVar("One")


@dataclass(frozen=True)
class Contestant(ABC):
    """Starts runs in a namespace, one after the other. `name` is for tables."""

    name: str
    namespace: Namespace

    @abstractmethod
    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        """Start a run of two ranks; `output` of this machine is /output in the workers."""

    @abstractmethod
    def wait_for_end(self) -> None:
        """Wait until the run has finished."""

    @abstractmethod
    def log(self) -> str:
        """The log of the launcher, each line after the time at which it was written."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the run; its pods are gone then."""

    def delete_worker(self, pod: str) -> None:
        """Delete a worker's pod without grace."""
        at_once = ("--grace-period=0", "--force", "--wait=false")
        self.namespace.kubectl("delete", "pod", pod, *at_once)

    def _wait_for_no_pods(self) -> None:
        """The pods of one run must not use the machine while the next one is measured."""
        if json.loads(self.namespace.kubectl("get", "pods", "--output=json"))["items"]:
            self.namespace.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=120s")


@dataclass(frozen=True)
class Chart(Contestant):
    """A release of this chart with some values."""

    values: Values = field(default_factory=dict)

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        self._helm("install", command, output)

    def change(self, command: Sequence[str]) -> None:
        """Give the run another command: the workers stay."""
        self._helm("upgrade", command, None)

    def wait_for_end(self) -> None:
        end = self.namespace.wait_for_end(NAME)
        assert end == "Complete", self.namespace.describe(NAME)

    def log(self) -> str:
        return self.namespace.kubectl(
            "logs", f"job/{self.namespace.job(NAME)}", "--container=master", "--timestamps"
        )

    def remove(self) -> None:
        self.namespace.helm("uninstall", NAME, "--wait")
        self._wait_for_no_pods()

    def _helm(self, verb: str, command: Sequence[str], output: Path | None) -> None:
        values: Values = {**self.values, "master": {"args": [*command], "backoffLimit": RETRIES}}
        if output:
            values["volumes"] = [{"name": "output", "hostPath": {"path": str(output)}}]
            values["volumeMounts"] = [{"name": "output", "mountPath": "/output"}]
        done = self.namespace.helm(verb, NAME, str(CHART), values=values, preload=True)
        assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class MpiOperator(Contestant):
    """The MPI Operator with one of its policies for creating the launcher."""

    policy: str

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        job = mpi_operator.mpi_job(NAME, self.namespace.image, command, self.policy, output)
        self.namespace.kubectl("apply", "--filename", "-", input=json.dumps(job))

    def wait_for_end(self) -> None:
        succeeded = "--for=condition=Succeeded"
        self.namespace.kubectl("wait", succeeded, f"mpijob/{NAME}", "--timeout=240s")

    def log(self) -> str:
        launcher = "--selector=training.kubeflow.org/job-role=launcher"
        return self.namespace.kubectl("logs", launcher, "--timestamps", "--tail=-1")

    def remove(self) -> None:
        self.namespace.kubectl("delete", "mpijob", NAME, "--cascade=foreground", "--timeout=120s")
        self._wait_for_no_pods()


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that benchmarks of contestants share."""
    parser.add_argument("--turns", type=int, default=5, help="how often each is measured")
    parser.add_argument("--only", default="", metavar="NAMES", help="chart,cold,waiting,...")


def in_turns(chosen: Sequence[One], turns: int) -> Iterator[One]:
    """All items, `turns` times; each turn begins with the next item."""
    for number in range(turns):
        first = number % len(chosen)
        yield from (*chosen[first:], *chosen[:first])


def choose(only: str, everyone: Mapping[str, One]) -> dict[str, One]:
    """What has these short names, or all. Ends the program for an unknown name."""
    names = [name for name in only.split(",") if name] or list(everyone)
    unknown = sorted(set(names) - set(everyone))
    if unknown:
        sys.exit(f"unknown --only {', '.join(unknown)}; use {', '.join(everyone)}")
    return {name: everyone[name] for name in names}


@contextmanager
def bench_namespace() -> Iterator[Namespace]:
    """A namespace of its own on the local cluster, which has the examples' image then."""
    kubeconfig = cluster.up()
    image = build("examples")
    load(image.reference)
    namespace = Namespace("hvd-bench", kubeconfig, image.reference)
    namespace.kubectl("create", "namespace", namespace.name)
    try:
        yield namespace
    finally:
        namespace.kubectl("delete", "namespace", namespace.name, "--timeout=120s")


@contextmanager
def contestants(values: Values | None = None) -> Iterator[dict[str, Contestant]]:
    """All contestants by a short name; `values` are the chart's, in addition to each one's own."""
    with bench_namespace() as namespace, mpi_operator.running_operator(namespace):
        values = values or {}
        spare = {**values, "worker": {"spares": 1}}
        cold = {**values, "launch": {"preload": []}}
        everyone: dict[str, Contestant] = {
            "chart": Chart("this chart", namespace, values),
            "cold": Chart("this chart, preload: []", namespace, cold),
            "spare": Chart("this chart, one spare", namespace, spare),
            "default": MpiOperator("MPI Operator, AtStartup", namespace, "AtStartup"),
            "waiting": MpiOperator(
                "MPI Operator, WaitForWorkersReady", namespace, "WaitForWorkersReady"
            ),
        }
        yield everyone
