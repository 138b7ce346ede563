"""A namespace of a real cluster, with Helm and kubectl."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devtools.common.errors import DevtoolsError
from devtools.common.repository import CHART
from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.toolchain.kubectl import Kubectl
from devtools.toolchain.tools import tool
from hvd_pods.shared.thread_counts import YIELD
from tests.support.go_programs import NO_GARBAGE_COLLECTION, run_program

Values = dict[str, Any]
# The check for unknown fields takes a third of Helm's time. Tests with chart-testing include it.
UNVALIDATED = "--disable-openapi-validation"
# Tests on a cluster repeat with the older Helm. `make test` leaves out these repetitions.
HELMS = (pytest.param("helm3", marks=pytest.mark.rare), "helm4")


def on_shared_cores(values: Values, preload: bool = False) -> Values:
    """Return the values for tests that share few cores, unless `values` sets them.

    YIELD lets waiting ranks leave their cores to others. Without `preload`, workers import nothing
    early: most tests use no framework, and would wait for its import.
    """
    launch = {**({} if preload else {"preload": []}), **values.get("launch", {})}
    worker = values.get("worker", {})
    env = worker.get("env", [])
    if not any(entry["name"] == YIELD for entry in env):
        env = [*env, {"name": YIELD, "value": "1"}]
    return {**values, "launch": launch, "worker": {**worker, "env": env}}


def image_values(reference: str) -> dict[str, str]:
    """Return an image as the chart's values name it."""
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


@dataclass(frozen=True)
class Namespace:
    """One namespace of the cluster under test."""

    name: str
    kubeconfig: Path
    image: str

    @property
    def client(self) -> Kubectl:
        return Kubectl(self.name, {"KUBECONFIG": str(self.kubeconfig), **NO_GARBAGE_COLLECTION})

    def environment(self) -> dict[str, str]:
        """Return variables that select the cluster for Helm and kubectl."""
        return self.client.variables()

    def call(self, *command: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program with the cluster in its environment, whatever its exit status."""
        return run_program(command, input, self.environment())

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Return the output of kubectl. Raises DevtoolsError when it fails."""
        return self.client.run(*arguments, input=input)

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Create or change an object, or a list of objects."""
        self.kubectl("apply", "--filename", "-", input=json.dumps(manifest))

    def limit_pods(self, number: int) -> None:
        """Limit the number of pods in the namespace by the quota `small`; existing pods stay."""
        spec = {"hard": {"pods": str(number)}}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
        self.apply({**quota, "spec": spec})

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return an object or list of the namespace."""
        answer: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output", "json"))
        return answer

    def helm(
        self,
        *arguments: str,
        values: Values | None = None,
        version: str = "helm4",
        preload: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run Helm in the namespace, whatever its exit status.

        values: for `--values`, with the image and the additions of `on_shared_cores`; None for a
        command without values. version: the name of the program, helm4 or helm3.
        With `preload`, launch.preload has the chart's default.
        """
        command = [str(tool(version)), *arguments, "--namespace", self.name]
        if values is None:
            return self.call(*command)
        complete = {"image": image_values(self.image), **on_shared_cores(values, preload)}
        return self.call(*command, "--values", "-", input=json.dumps(complete))

    def install(
        self, release: str, values: Values, version: str = "helm4", verb: str = "install"
    ) -> None:
        """Run `helm install`, or `upgrade`, which must succeed."""
        words = (verb, UNVALIDATED, release, str(CHART))
        done = self.helm(*words, values=values, version=version)
        assert done.returncode == 0, done.stderr

    def upgrade(self, release: str, values: Values, version: str = "helm4") -> None:
        """Run `helm upgrade`, which must succeed."""
        self.install(release, values, version, "upgrade")

    def keys(self, release: str, generation: int = 1) -> dict[str, Any]:
        """Return the data of the Secrets with the release's keys by owner; None for no data."""
        suffix = "" if generation == 1 else f"-{generation}"
        names = {of: f"{release}-agent-{of}{suffix}" for of in ("master", "worker")}
        return {of: self.get("secret", name).get("data") for of, name in names.items()}

    def jobs(self, release: str) -> list[str]:
        """Return names of the release's Jobs, including those that are being deleted."""
        listed = self.get("jobs", "--selector", f"app.kubernetes.io/instance={release}")
        return [job["metadata"]["name"] for job in listed["items"]]

    def job(self, release: str) -> str:
        """Return the name of the release's only Job."""
        names = self.jobs(release)
        assert len(names) == 1, names
        return names[0]

    def wait_for_end(self, release: str, seconds: int = 480) -> str:
        """Wait for the Job's end. Return "Complete" or "Failed".

        Fails, with the state of the release in the cluster, when it has not ended within `seconds`.
        """
        try:
            return self.client.wait_for_job_end(self.job(release), seconds)
        except DevtoolsError:
            pytest.fail(self.describe(release))

    def assert_completes(self, release: str) -> None:
        """Wait for the Job's end. The Job must complete."""
        assert self.wait_for_end(release) == "Complete", self.describe(release)

    def train(self, release: str, values: Values) -> str:
        """Install the release and wait until the Job completes. Return the master's log."""
        self.install(release, values)
        self.assert_completes(release)
        return self.log(release)

    def log(self, release: str) -> str:
        """Return the log of the master in the Job's newest pod."""
        return self.kubectl("logs", f"job/{self.job(release)}", "--container", "master")

    def wait_for_line(self, *texts: str, seconds: int = 480) -> None:
        """Follow the log of the master of `hvd` until one line contains all `texts`.

        Fails when there is none within `seconds`.
        """
        pod = self.client.wait_for_job_start(self.job("hvd"), 180)
        with subprocess.Popen(
            ["timeout", str(seconds), *self.client.command("logs", "--follow", pod)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as log:
            is_printed = any(all(text in line for text in texts) for line in log.stdout or ())
            log.terminate()
        assert is_printed, f"no line of the log has {texts}:\n{self.log('hvd')}"

    def master_pods(self, release: str) -> list[dict[str, Any]]:
        """Return the pods of the Job, one for each master, in no order."""
        selector = f"batch.kubernetes.io/job-name={self.job(release)}"
        pods: list[dict[str, Any]] = self.get("pods", "--selector", selector)["items"]
        return pods

    def master_events(self, reason: str = "") -> list[dict[str, Any]]:
        """Return the events of masters, oldest first: all, or those with one reason."""
        listed: list[dict[str, Any]] = self.get("events", "--sort-by=.eventTime")["items"]
        of_masters = [
            event for event in listed if event["source"].get("component") == "horovod-master"
        ]
        return [event for event in of_masters if reason in ("", event["reason"])]

    def wait_for_event(self, reason: str, seconds: int, times: int = 1) -> None:
        """Wait until the namespace has had `times` events with this reason.

        Raises DevtoolsError when there were fewer within `seconds`.
        """
        names: set[str] = set()

        def is_last(name: str) -> bool:
            names.add(name)
            return len(names) >= times

        selector = f"--field-selector=reason={reason}"
        self.client.watch(["events", selector], "{.metadata.name}", is_last, seconds)

    def wait_for_no_workers(self, release: str) -> None:
        """Wait until every worker pod of a release is deleted."""
        selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/component=worker"
        self.kubectl("wait", "pods", "--for=delete", "--selector", selector, "--timeout=180s")

    def wait_until_gone(self, kinds: str) -> None:
        """Wait until no object of these kinds is left; the cluster removes some after others."""
        what = f"the namespace has no {kinds}"
        wait_until(lambda: not self.get(kinds)["items"], 180, what, PROGRAM_PAUSE)

    def replicas(self, stateful_set: str) -> int:
        """Return the desired number of pods of a StatefulSet."""
        return int(self.get("statefulset", stateful_set)["spec"]["replicas"])

    def describe(self, release: str) -> str:
        """Return the pods, events and last log lines, for the message of a failed test."""
        selector = f"app.kubernetes.io/instance={release}"
        return "\n".join(
            self.call(str(tool("kubectl")), "-n", self.name, *words).stdout
            for words in (
                ["describe", "pods,jobs,statefulsets", "-l", selector],
                ["get", "events"],
                ["logs", "-l", f"{selector},app.kubernetes.io/component=master", "--tail=40"],
            )
        )


@contextmanager
def new_namespace(name: str, kubeconfig: Path, image: str) -> Iterator[Namespace]:
    """Create a namespace that enforces Pod Security `restricted`, until the end of the block.

    Its name begins with `name`; characters that names cannot have are replaced.
    """
    beginning = re.sub("[^a-z0-9]+", "-", name.lower())[:50].strip("-")
    # A namespace of an earlier run may still be terminating.
    own_name = f"{beginning}-{secrets.token_hex(4)}"
    namespace = Namespace(own_name, kubeconfig, image)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": own_name, "labels": labels},
    }
    namespace.kubectl("create", "--filename", "-", input=json.dumps(manifest))
    try:
        # Without the service account, pods and tokens are refused.
        namespace.kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=180s")
        yield namespace
    finally:
        namespace.kubectl("delete", "namespace", own_name, "--wait=false")


def true_conditions(item: Mapping[str, Any]) -> set[str]:
    """Return the conditions of an object that are true."""
    listed = item.get("status", {}).get("conditions", [])
    return {condition["type"] for condition in listed if condition["status"] == "True"}


@contextmanager
def node_without_kubelet(
    namespace: Namespace, name: str, labels: Mapping[str, str], capacity: Values, pods: Values
) -> Iterator[None]:
    """Create a ready node. Pods that tolerate the taint `hvd-test` are scheduled to it, but never
    run.

    capacity: the node's capacity. pods: the part of it for pods. The end of the block deletes the
    node.
    """
    taint = {"key": "hvd-test", "value": name, "effect": "NoSchedule"}
    node = {"apiVersion": "v1", "kind": "Node", "spec": {"taints": [taint]}}
    namespace.apply({**node, "metadata": {"name": name, "labels": labels}})
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": capacity, "allocatable": pods, "conditions": ready}
    patch = json.dumps({"status": status})
    try:
        namespace.kubectl("patch", "node", name, "--subresource=status", "--patch", patch)
        yield
    finally:
        namespace.kubectl("delete", "node", name)


def remove_from_nodes_without_kubelet(namespace: Namespace, *releases: str) -> None:
    """Uninstall releases and delete their pods, because no kubelet ends them there."""
    for release in releases:
        namespace.helm("uninstall", release, "--ignore-not-found")
    namespace.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
