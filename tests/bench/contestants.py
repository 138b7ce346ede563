"""What starts the same training on two ranks in pods of the local cluster: this chart, and others.

The others have adapters in modules of their own.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar, TypeVar

import hvdchart
from devtools.common.errors import DevtoolsError
from devtools.common.repository import CHART
from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.localkube import cluster
from devtools.localkube.images import load_images
from images.builder.build import build_image
from tests.faults.node import Pod
from tests.faults.storm import LAUNCH, MOST_FAULTS
from tests.support.namespace import Namespace, Values
from tests.support.openssh.image import OPEN_MPI_4

NAME = "bench"
# For the script of a contestant with the chart: it tells its progress.
REPORTS = ("--report",)
One = TypeVar("One")


def read_stamp(text: str) -> float:
    """An RFC 3339 time as seconds; the kubelet writes nanoseconds, Python reads microseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z", r"\1+00:00", text)).timestamp()


@dataclass(frozen=True)
class Contestant(ABC):
    """Starts runs in a namespace, one after the other.

    name: for tables. options: what the script of the training gets. kinds: of the objects whose
    events and conditions tell a person about a run; the first one is the run.
    """

    name: str
    namespace: Namespace
    options: Sequence[str] = ()
    version: ClassVar[str]
    kinds: ClassVar[Sequence[str]]
    launcher_label: ClassVar[str] = f"batch.kubernetes.io/job-name={NAME}"

    @property
    def image(self) -> str:
        """The image of its pods, which the cluster has."""
        return self.namespace.image

    def prepare(self, output: Path | None = None) -> None:  # noqa: B027
        """Do what an administrator does once, before runs are started."""

    @abstractmethod
    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        """Start a run of two ranks; `output` of this machine is /output in the workers."""

    def wait_for_end(self) -> None:
        pods = ["pods", "--selector", self.launcher_label]
        self.namespace.client.watch(pods, "{.status.phase}", "Succeeded".__eq__, 240)

    def remove(self) -> None:
        self.namespace.kubectl("delete", self.kinds[0], NAME, "--timeout=120s")
        self._remove_pods()

    def launcher(self) -> Pod:
        return max(
            self.namespace.get("pods", "--selector", self.launcher_label)["items"],
            key=lambda pod: str(pod["metadata"]["creationTimestamp"]),
        )

    def log(self) -> str:
        """The launcher's log with times, behind that of its container before a restart."""
        pod = self.launcher()
        command = ("logs", pod["metadata"]["name"], "--container")
        container = pod["spec"]["containers"][0]["name"]
        texts = []
        for options in (("--previous",), ()):
            with suppress(DevtoolsError):
                texts.append(self.namespace.kubectl(*command, container, "--timestamps", *options))
        return "".join(texts)

    def reported(self, since: float) -> str:
        """What a person can read about the run: the launcher's log, events and conditions."""
        lines = []
        for line in self.log().splitlines():
            stamp, _, text = line.partition(" ")
            if re.match(r"\d{4}-", stamp) and read_stamp(stamp) >= since:
                lines.append(text)
        for event in self.namespace.get("events")["items"]:
            at = event.get("lastTimestamp") or event.get("eventTime")
            if event["involvedObject"]["kind"] in self.kinds and at:
                # Events may have whole seconds alone.
                lines += [event["message"]] * (read_stamp(at) >= int(since))
        for kind in self.kinds:
            for item in self.namespace.get(kind)["items"]:
                for condition in item.get("status", {}).get("conditions", []):
                    changed = read_stamp(condition["lastTransitionTime"])
                    lines += [condition.get("message", "")] * (changed >= int(since))
        return "\n".join(lines)

    def _remove_pods(self) -> None:
        """The pods of one run must not use the machine while the next one is measured."""

        def none_is_left() -> bool:
            pods = [pod["metadata"]["name"] for pod in self.namespace.get("pods")["items"]]
            if pods:
                # How soon they end is not what is measured.
                at_once = ("--ignore-not-found", "--grace-period=1")
                self.namespace.kubectl("delete", "pod", *pods, *at_once)
            return not pods

        wait_until(none_is_left, 120, "no pod is left", PROGRAM_PAUSE)


@dataclass(frozen=True)
class Chart(Contestant):
    """A release of this chart with some values."""

    values: Values = field(default_factory=dict)
    version: ClassVar[str] = f"hvdchart {hvdchart.__version__}"
    kinds: ClassVar[Sequence[str]] = ("Job",)
    launcher_label: ClassVar[str] = (
        f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component=master"
    )

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        master = {"args": [*command], "backoffLimit": MOST_FAULTS}
        values: Values = {**self.values, "master": master}
        if output:
            values["volumes"] = [{"name": "output", "hostPath": {"path": str(output)}}]
            values["volumeMounts"] = [{"name": "output", "mountPath": "/output"}]
        done = self.namespace.helm("install", NAME, str(CHART), values=values, preload=True)
        assert done.returncode == 0, done.stderr

    def wait_for_end(self) -> None:
        end = self.namespace.wait_for_end(NAME)
        assert end == "Complete", self.namespace.describe(NAME)

    def remove(self) -> None:
        self.namespace.helm("uninstall", NAME, "--wait")
        self._remove_pods()


def chart_contestants(namespace: Namespace) -> dict[str, Contestant]:
    """This chart: with its defaults, and with what the state in the workers' memory makes possible.

    The workers stay, so that the next run of the benchmark does not wait for their images.
    """
    cleanup = {"cleanup": "Never"}
    spare = {**cleanup, "worker": {"spares": 1}}
    direct = {**spare, "launch": LAUNCH}
    in_memory = (*REPORTS, "--keep")
    return {
        "chart": Chart("this chart", namespace, REPORTS, cleanup),
        "kept": Chart("this chart, `keep`", namespace, in_memory, cleanup),
        "spare": Chart("this chart, `keep` and a spare", namespace, in_memory, spare),
        "keep": Chart("this chart, `keep`, a spare and mode direct", namespace, in_memory, direct),
    }


def in_turns(chosen: Sequence[One], turns: int) -> Iterator[One]:
    """All items, `turns` times; each turn begins with the next item."""
    for number in range(turns):
        first = number % len(chosen)
        yield from (*chosen[first:], *chosen[:first])


def choose_contestants(only: str, everyone: Mapping[str, One]) -> dict[str, One]:
    """What has these short names, or all. Ends the program for an unknown name."""
    names = [name for name in only.split(",") if name] or list(everyone)
    unknown = sorted(set(names) - set(everyone))
    if unknown:
        sys.exit(f"unknown --only {', '.join(unknown)}; use {', '.join(everyone)}")
    return {name: everyone[name] for name in names}


@contextmanager
def bench_namespace(
    name: str = "examples", overrides: Mapping[str, str] = OPEN_MPI_4
) -> Iterator[Namespace]:
    """A namespace of its own on the local cluster, which has the image of all contestants then."""
    kubeconfig = cluster.up()
    image = build_image(name, overrides=overrides)
    load_images(image.reference)
    namespace = Namespace("hvd-bench", kubeconfig, image.reference)
    namespace.kubectl("create", "namespace", namespace.name)
    try:
        yield namespace
    finally:
        namespace.kubectl("delete", "namespace", namespace.name, "--timeout=120s")
