"""doctor --probe-policies: whether a cluster enforces NetworkPolicies."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from hvdchart.doctor.policies import examine_policies
from hvdchart.doctor.policy_probe import POLICY_PROBE_MARK
from hvdchart.run.kube.cluster import Cluster
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.command import Command


class Kubelet:
    """Starts each pod of the namespace: the first one listens, the second one prints a text."""

    def __init__(self, cluster: FakeCluster, prints: str) -> None:
        self.pods: list[dict[str, Any]] = []
        self._cluster = cluster
        self._prints = prints
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()

    def _run(self) -> None:
        for number, phase in enumerate(("Running", "Succeeded")):
            self._cluster.wait_for("pods", "create", number + 1)
            (pod,) = (
                new_pod for new_pod in self._cluster.items("pods") if new_pod not in self.pods
            )
            name = pod["metadata"]["name"]
            self._cluster.log(name, self._prints, end=True)
            started = {**pod, "status": {"phase": phase, "podIP": "10.0.0.9"}}
            self.pods.append(started)
            self._cluster.put("pods", started)


@pytest.mark.promise("doctor finds out whether policies are enforced")
@pytest.mark.parametrize(
    ("prints", "state"),
    [
        (POLICY_PROBE_MARK + "enforced", "ok"),
        (POLICY_PROBE_MARK + "open", "problem"),
        (POLICY_PROBE_MARK + "unknown", "unknown"),
        ("exec: python3: not found", "unknown"),
    ],
)
def test_doctor_finds_out_whether_policies_are_enforced(
    fake_cluster: FakeCluster, prints: str, state: str
) -> None:
    Kubelet(fake_cluster, prints)
    finding = examine_policies(Cluster.connect(), "python:3")
    assert finding.state == state
    assert bool(finding.remedy) is (state == "problem")
    assert_nothing_is_left(fake_cluster)


def test_probe_connects_to_the_selected_pod_from_one_that_is_not_selected(
    fake_cluster: FakeCluster,
) -> None:
    """The policy belongs to the selected pod: Kubernetes deletes it when that pod is gone."""
    kubelet = Kubelet(fake_cluster, POLICY_PROBE_MARK + "enforced")
    examine_policies(Cluster.connect(), "python:3")
    (created,) = (
        request
        for request in fake_cluster.requests
        if request.verb == "create" and request.resource != "pods"
    )
    policy = created.body
    target, stranger = kubelet.pods
    (owner,) = policy["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["apiVersion"]) == ("Pod", "v1")
    assert [owner[key] for key in ("name", "uid")] == [
        target["metadata"][key] for key in ("name", "uid")
    ]
    selected = policy["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= target["metadata"]["labels"].items()
    assert not selected.items() <= stranger["metadata"]["labels"].items()
    command = stranger["spec"]["containers"][0]["command"]
    assert command[-2:] == ["connect", target["status"]["podIP"]]


def assert_nothing_is_left(cluster: FakeCluster) -> None:
    assert [cluster.names(kind) for kind in ("pods", "networkpolicies")] == [[], []]


@pytest.mark.parametrize("kind", ["networkpolicies", "pods"])
def test_nothing_is_left_where_a_creation_is_refused(fake_cluster: FakeCluster, kind: str) -> None:
    fake_cluster.refusals = {f"{kind} create": (403, "no right")}
    finding = examine_policies(Cluster.connect(), "python:3")
    assert finding.state == "unknown"
    assert "no right" in finding.text
    assert_nothing_is_left(fake_cluster)


def test_doctor_probes_only_if_it_is_asked(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.created_status = {"allowed": True}
    fake_cluster.put("namespaces", {"metadata": {"name": "team"}})
    hvdchart("doctor", "-o", "json")
    kinds = {request.resource for request in fake_cluster.requests if request.verb == "create"}
    assert kinds == {"selfsubjectaccessreviews"}
    fake_cluster.refusals = {"networkpolicies create": (403, "no right")}
    findings = json.loads(hvdchart("doctor", "--probe-policies", "python:3", "-o", "json").output)
    assert "network policies" in {finding["subject"] for finding in findings}
