"""Which releases an upgrade would leave as they are, found in what Helm has stored."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvdchart.chart_files import chart_dir
from hvdchart.errors import ClusterError
from hvdchart.run import installed
from hvdchart.run.cluster import Cluster
from tests.fakes import faults
from tests.fakes.cluster import FakeCluster
from tests.unit.hvdchart.releases import chart_text, store_release

Change = Callable[["Stored"], object]
VALUES = {"cleanup": "OnSuccess", "worker": {"number": 2, "spread": None}, "shm": {"a": True}}
# As the chart renders them, cut down to what differs between kinds.
MANIFEST = """---
# Source: horovod/templates/configmap.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: hvd-files, labels: {of: hvd}}
immutable: true
data: {a.py: "text"}
---
# Source: horovod/templates/networkpolicy.yaml
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: hvd}
spec:
  ingress:
    - from: [{podSelector: {}}]
  policyTypes: [Ingress]
---
# Source: horovod/templates/statefulset.yaml
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: hvd-worker, labels: {horovod/run: a}}
spec: {replicas: 2, serviceName: hvd, template: {spec: {containers: [{resources: {cpu: 1}}]}}}
---
# Source: horovod/templates/job.yaml
apiVersion: batch/v1
kind: Job
metadata:
  name: hvd-master
  labels: {horovod/run: a}
  annotations: {horovod/cleanup: OnSuccess}
spec: {backoffLimit: 3, podFailurePolicy: {rules: []}, template: {spec: {containers: []}}}
"""
RESOURCES = {
    "ConfigMap": "configmaps",
    "NetworkPolicy": "networkpolicies",
    "StatefulSet": "statefulsets",
    "Job": "jobs",
    "PodGroup": "podgroups",
}


class Stored:
    """A release that Helm has installed, its objects, and what is asked for now."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.values: Any = json.loads(json.dumps(VALUES))
        self.release: Any = {
            "config": VALUES, "chart": json.loads(chart_text()), "info": {"status": "deployed"},
            "manifest": MANIFEST,
        }  # fmt: skip
        for item in yaml.safe_load_all(MANIFEST):
            if item["kind"] == "NetworkPolicy":
                # What the API server adds.
                item["spec"]["ingress"][0]["ports"] = [{"port": 1}]
            item["metadata"]["uid"] = "1"
            item["status"] = {}
            self.put(item)

    def put(self, item: Any) -> None:
        self.cluster.put(RESOURCES[item["kind"]], item)

    def change(self, kind: str, **more: Any) -> None:
        """Change an object in the cluster, and nothing in the release."""
        (item,) = [i for i in self.cluster.items(RESOURCES[kind]) if i["metadata"]["name"] != "no"]
        self.put({**item, **{key: {**item.get(key, {}), **value} for key, value in more.items()}})

    def store(self, revision: int = 3, **more: Any) -> None:
        """Write a revision as Helm does."""
        store_release(self.cluster, revision, {**self.release, **more})

    def revision(self) -> int | None:
        return installed.unchanged_revision(Cluster.connect(), "hvd", self.values)


@pytest.fixture
def stored(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Stored:
    monkeypatch.delenv("HELM_DRIVER", raising=False)
    return Stored(fake_cluster)


def end(stored: Stored, how: str, cleanup: str, replicas: int) -> None:
    """Let the run have ended so, with so many workers left."""
    stored.release["manifest"] = MANIFEST.replace("OnSuccess", cleanup)
    stored.change("Job", metadata={"annotations": {"horovod/cleanup": cleanup}})
    stored.change("Job", status={"conditions": [{"type": how, "status": "True"}]})
    stored.change("StatefulSet", spec={"replicas": replicas})


SAME: dict[str, Change] = {
    "all as it was": lambda stored: None,
    "elastic, scaled": lambda s: s.change("StatefulSet", spec={"replicas": 5}),
    "pods kept": lambda s: s.change("StatefulSet", spec={"template": {"spec": {"x": 1}}}),
    "finished": lambda s: end(s, "Complete", "OnSuccess", 0),
    "finished, always": lambda s: end(s, "Complete", "Always", 0),
    "finished, never": lambda s: end(s, "Complete", "Never", 2),
    "failed": lambda s: end(s, "Failed", "OnSuccess", 2),
    "failed, always": lambda s: end(s, "Failed", "Always", 0),
    "on its way to fail": lambda s: end(s, "FailureTarget", "Always", 2),
    "an empty list, left out": lambda s: s.release.update(
        manifest=MANIFEST.replace("policyTypes:", "egress: []\n  policyTypes:")
    ),
    "labels of others": lambda s: s.change("ConfigMap", metadata={"annotations": {"x": "y"}}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_release_that_an_upgrade_would_leave_is_unchanged(stored: Stored, change: Change) -> None:
    change(stored)
    stored.store(2, info={"status": "superseded"}, config={})
    stored.store()
    assert stored.revision() == 3
    listed = stored.cluster.wait_for("secrets", "list")
    assert "PartialObjectMetadataList" in listed.headers["Accept"], "ten revisions are megabytes"


def edit(stored: Stored, list_name: str, name: str, data: bytes) -> None:
    """Let the stored chart have another content in a file."""
    (file,) = [file for file in stored.release["chart"][list_name] if file["name"] == name]
    file["data"] = base64.b64encode(data).decode()


def suspend(stored: Stored) -> None:
    stored.release["manifest"] = MANIFEST.replace("backoffLimit: 3", "suspend: true")
    stored.change("Job", spec={"suspend": True})


OTHER: dict[str, Change] = {
    "another value": lambda s: s.values.update(cleanup="Never"),
    "one value more": lambda s: s.values.update(shm={"a": True, "b": 1}),
    "one value less": lambda s: s.values.pop("shm"),
    "1 is not true": lambda s: s.values.update(shm={"a": 1}),
    "failed": lambda s: s.release.update(info={"status": "failed"}),
    "pending": lambda s: s.release.update(info={"status": "pending-upgrade"}),
    "a template": lambda s: edit(s, "templates", "templates/job.yaml", b"other"),
    "a program of the pods": lambda s: edit(s, "files", "files/rank.py", b"other"),
    "a file more before": lambda s: s.release["chart"]["files"].append(
        {"name": "files/gone.py", "data": ""}
    ),
    "a file more now": lambda s: s.release["chart"]["files"].pop(),
    "schema": lambda s: s.release["chart"].update(schema="e30="),
    "chart version": lambda s: s.release["chart"]["metadata"].update(version="9.9.9"),
    "default": lambda s: s.release["chart"]["values"].update(cleanup="Never"),
    "object deleted": lambda s: s.cluster.remove("configmaps", "hvd-files"),
    "job deleted": lambda s: s.cluster.remove("jobs", "hvd-master"),
    "object going": lambda s: s.change("ConfigMap", metadata={"deletionTimestamp": "now"}),
    "label changed": lambda s: s.change("ConfigMap", metadata={"labels": {"of": "me"}}),
    "data changed": lambda s: s.change("ConfigMap", data={"a.py": "other"}),
    "rule added": lambda s: s.change("NetworkPolicy", spec={"ingress": [{}, {}]}),
    "an empty map, left out": lambda s: s.release.update(
        manifest=MANIFEST.replace("policyTypes:", "egress: {}\n  policyTypes:")
    ),
    "rule removed": lambda s: s.change("NetworkPolicy", spec={"ingress": []}),
    "retries": lambda s: s.change("Job", spec={"backoffLimit": 9}),
    "run's label": lambda s: s.change("Job", metadata={"labels": {"horovod/run": "b"}}),
    "scaled to zero": lambda s: s.change("StatefulSet", spec={"replicas": 0}),
    "workers after the end": lambda s: end(s, "Complete", "OnSuccess", 2),
    "workers of a failed run": lambda s: end(s, "Failed", "OnSuccess", 0),
    "workers of a suspended run": suspend,
    "run whose job is gone": lambda s: s.release.update(
        manifest=MANIFEST[: MANIFEST.index("---\n# Source: horovod/templates/job")]
    ),
    "gang": lambda s: s.release.update(
        manifest=f"{MANIFEST}---\napiVersion: a/v1\nkind: PodGroup\nmetadata: {{name: hvd}}\n"
    ),
    "another namespace": lambda s: s.release.update(
        manifest=MANIFEST.replace("{name: hvd}", "{name: hvd, namespace: other}")
    ),
    "manifest of another kind": lambda s: s.release.update(manifest="- a list\n"),
    "no manifest": lambda s: s.release.pop("manifest"),
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
def test_whatever_helm_would_change_or_might_is_a_change(stored: Stored, change: Change) -> None:
    change(stored)
    stored.store()
    assert stored.revision() is None


def test_a_gang_is_left_to_helm_although_it_is_there(stored: Stored) -> None:
    OTHER["gang"](stored)
    stored.put({"kind": "PodGroup", "metadata": {"name": "hvd"}, "apiVersion": "a/v1"})
    stored.store()
    assert stored.revision() is None


@pytest.mark.parametrize("status", ["failed", "pending-upgrade"])
def test_the_newest_revision_counts(stored: Stored, status: str) -> None:
    """Names in alphabetic order would put the tenth revision before the third."""
    stored.store()
    stored.store(10, info={"status": status})
    assert stored.revision() is None


@pytest.mark.parametrize(("driver", "revision"), [("secret", 3), ("configmap", None)])
def test_releases_in_another_place_are_left_to_helm(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, driver: str, revision: int | None
) -> None:
    monkeypatch.setenv("HELM_DRIVER", driver)
    stored.store()
    assert stored.revision() == revision


@pytest.mark.slow
def test_a_file_that_the_chart_has_only_now_is_a_change(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = tmp_path / "chart"
    shutil.copytree(chart_dir(), newer)
    monkeypatch.setattr(installed, "chart_dir", lambda: newer)
    stored.store()
    (newer / "files" / "__pycache__").mkdir(exist_ok=True)
    (newer / "files" / "__pycache__" / "x.pyc").touch()
    (newer / "ci" / "more.yaml").touch()
    assert stored.revision() == 3, "Helm leaves these out"
    (newer / "templates" / "more.yaml").touch()
    assert stored.revision() is None


@pytest.mark.parametrize("resource", ["secrets list", "secrets get", "networkpolicies get"])
def test_what_one_may_not_read_is_left_to_helm(stored: Stored, resource: str) -> None:
    stored.store()
    stored.cluster.refusals[resource] = (403, "no")
    assert stored.revision() is None


def test_a_server_that_does_not_answer_is_an_error(stored: Stored) -> None:
    stored.store()
    # More often than the connection is tried.
    stored.cluster.fail("GET", "core/secrets", faults.reset, 9)
    with pytest.raises(ClusterError, match="cannot read release hvd in namespace team: the API"):
        stored.revision()


@pytest.mark.parametrize("data", ["", "bm8=", "!", None])
def test_a_damaged_record_is_left_to_helm(stored: Stored, data: str | None) -> None:
    stored.store()
    (secret,) = stored.cluster.items("secrets")
    stored.cluster.put("secrets", {**secret, "data": {"release": data}})
    assert stored.revision() is None


def test_there_is_nothing_of_a_name_that_helm_does_not_know(stored: Stored) -> None:
    assert stored.revision() is None


def test_the_order_of_values_is_no_change(stored: Stored) -> None:
    """Helm writes them in alphabetic order."""
    stored.values = dict(reversed(VALUES.items()))
    stored.store()
    assert stored.revision() == 3
