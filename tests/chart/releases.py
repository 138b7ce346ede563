"""Releases in a cluster that has no pods of them: upgraded, looked at, and ended by a test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from devtools.common.repository import CHART
from hvdchart.values.merge import merge_values
from tests.chart.render import Manifest, Values, of_kind, pod_spec
from tests.support.namespace import Namespace

# Suspended, so that neither pods nor images are needed.
RUN: Values = {"master": {"args": ["python", "train.py"], "suspend": True}, "cleanup": "Never"}
OTHER_COMMAND: Values = {"master": {"args": ["python", "other.py"]}}
KINDS = "jobs,statefulsets,configmaps"


def upgrade(place: Namespace, version: str, chart: Path, *values: Values) -> str:
    """Upgrade or install with merged values, which must succeed; return the notes."""
    merged: Values = {}
    for overrides in values:
        merged = merge_values(merged, overrides)
    done = place.helm("upgrade", "--install", "hvd", str(chart), values=merged, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Seen:
    """What Helm said in an upgrade, and the objects of the run after it."""

    notes: str
    jobs: list[Manifest]
    stateful_sets: list[Manifest]
    config_maps: dict[str, Manifest]

    @property
    def job(self) -> Manifest:
        (job,) = self.jobs
        return job

    @property
    def job_name(self) -> str:
        name: str = self.job["metadata"]["name"]
        return name

    @property
    def stateful_set(self) -> Manifest:
        (stateful_set,) = self.stateful_sets
        return stateful_set

    @property
    def written(self) -> dict[str, int]:
        """The Job and the StatefulSet by uid, with how many times their spec was written."""
        items = (self.job, self.stateful_set)
        return {item["metadata"]["uid"]: item["metadata"]["generation"] for item in items}

    @property
    def programs(self) -> set[str]:
        """The ConfigMaps of programs that the Job's and the StatefulSet's pods mount."""
        return {
            volume["configMap"]["name"]
            for item in (self.job, self.stateful_set)
            for volume in pod_spec(item)["volumes"]
            if volume["name"] == "archive"
        }

    @property
    def affinity(self) -> Manifest:
        """The affinity of the workers."""
        affinity: Manifest = pod_spec(self.stateful_set)["affinity"]
        return affinity

    @property
    def revision(self) -> str:
        """The workers' revision: pods of another one are replaced."""
        labels = self.stateful_set["spec"]["template"]["metadata"]["labels"]
        return str(labels["hvdchart/revision"])


def roll_back(place: Namespace, version: str) -> Seen:
    """Roll back to the first revision, and look at the objects."""
    done = place.helm("rollback", "hvd", "1", version=version)
    assert done.returncode == 0, done.stderr
    return look(place, done.stdout)


def see(place: Namespace, version: str, chart: Path, *values: Values) -> Seen:
    """Upgrade or install, and look at the objects."""
    return look(place, upgrade(place, version, chart, *values))


def look(place: Namespace, notes: str) -> Seen:
    """The objects of the run now."""
    items = place.get(KINDS)["items"]
    config_maps = of_kind(items, "ConfigMap")
    return Seen(
        notes,
        of_kind(items, "Job"),
        of_kind(items, "StatefulSet"),
        {item["metadata"]["name"]: item for item in config_maps},
    )


def end(place: Namespace, *conditions: str) -> None:
    """Let the run's Job have ended."""
    now = {"startTime": "2026-01-01T10:00:00Z"}
    if conditions[-1] == "Complete":
        now["completionTime"] = "2026-01-01T10:01:00Z"
    ended = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T10:01:00Z"}
        for kind in conditions
    ]
    patch = json.dumps({"status": {**now, "conditions": ended}})
    place.kubectl("patch", "job", place.job("hvd"), "--subresource=status", "-p", patch)


def wait_for_default_account(place: Namespace) -> None:
    """Wait for the account that Helm takes as the sign that it can read the cluster."""
    place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=180s")


# The content of the Secret of the master and of that of the workers.
Keys = tuple[dict[str, str] | None, dict[str, str] | None]
SECRETS = ("hvd-agent-master", "hvd-agent-worker")


def read_keys(place: Namespace, suffix: str = "") -> Keys:
    """The content of both Secrets; None where one is empty."""
    master, worker = (place.get("secret", f"{name}{suffix}").get("data") for name in SECRETS)
    return master, worker


def refuse(place: Namespace, values: Values) -> str:
    """Install a release, which must fail and leave no run; return the message."""
    wait_for_default_account(place)
    done = place.helm("install", "hvd", str(CHART), values=merge_values(RUN, values))
    assert done.returncode != 0
    of_release = ("--selector", "app.kubernetes.io/instance=hvd")
    assert place.get("statefulsets,jobs", *of_release)["items"] == []
    return done.stderr


def on_nodes(*ports: int, release: str, name: str = "horovod") -> Manifest:
    """A StatefulSet of a dependency of a release, whose pods have these ports of their nodes."""
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": release}
    listed = [{"containerPort": port} for port in ports]
    container = {"name": "worker", "image": "a", "ports": listed}
    # No node has the label: the pod waits.
    pod = {"hostNetwork": True, "nodeSelector": {"not": "there"}, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": f"{release}-worker", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
