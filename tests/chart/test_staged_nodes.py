"""Workers go where the data are: the record of a real API server, both Helms, and its rights."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hvdchart.values.merge import merge_values
from tests.chart.render import CHART, Values, pod_spec
from tests.chart.test_kept_run import HELMS, RUN, upgrade
from tests.e2e.cluster import Namespace

DATA: Values = {
    "staging": {"path": "/data/set", "command": ["fetch"]},
    "volumes": [{"name": "data", "hostPath": {"path": "/mnt/data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
FIRST = merge_values(RUN, DATA)
SECOND = merge_values(FIRST, {"master": {"args": ["python", "other.py"]}})
# What the record adds.
HAVE_THEM = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a", "node-b"]}


def record_name(place: Namespace) -> str:
    """The record that the release's master may write."""
    rules = place.get("role", "hvd-master")["rules"]
    (name,) = next(rule["resourceNames"] for rule in rules if "create" in rule["verbs"][1:])
    record: str = name
    return record


def put_record(place: Namespace, *nodes: str) -> None:
    """Write the record as a master does, with its rights: `files/staged.py`."""
    name = record_name(place)
    metadata = {"name": name, "labels": {"horovod/record": "staged"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    account = f"--as=system:serviceaccount:{place.name}:hvd-master"
    apply = ("apply", "--server-side", "--filename", "-", account)
    place.kubectl(*apply, input=json.dumps(body))
    data = json.dumps({"data": dict.fromkeys(nodes, "2026-01-01T10:00:00Z")})
    place.kubectl("patch", "configmap", name, "--type=merge", "-p", data, account)
    body["metadata"] = {"name": "another"}
    refused = place.call(*place.client.command(*apply), input=json.dumps(body))
    assert "cannot" in refused.stderr, "the master may write no other ConfigMap"


def affinity(place: Namespace) -> Any:
    return pod_spec(place.get("statefulset", "hvd-worker"))["affinity"]


def revision(place: Namespace) -> Any:
    labels = place.get("statefulset", "hvd-worker")["spec"]["template"]["metadata"]["labels"]
    return labels["horovod/revision"]


@pytest.mark.parametrize("version", HELMS)
def test_next_run_goes_to_the_nodes_that_have_the_data(place: Namespace, version: str) -> None:
    notes = upgrade(place, version, CHART, FIRST)
    assert "have the data" not in notes
    assert set(affinity(place)) == {"podAntiAffinity"}
    before = revision(place)
    put_record(place, "node-b", "node-a")

    upgrade(place, version, CHART, FIRST)
    assert set(affinity(place)) == {"podAntiAffinity"}, "the run that is there stays as it is"

    notes = upgrade(place, version, CHART, SECOND)
    assert "Nodes that have the data of staging.path already: node-a, node-b." in notes
    assert "A worker on another node fetches the data" in notes
    preferred = [{"weight": 100, "preference": {"matchExpressions": [HAVE_THEM]}}]
    assert affinity(place)["nodeAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": preferred
    }
    assert "podAntiAffinity" in affinity(place)
    assert revision(place) == before, "workers that run have the data: none is replaced"


def test_nodes_with_the_data_can_be_required_beside_what_the_values_require(
    place: Namespace,
) -> None:
    upgrade(place, "helm4", CHART, FIRST)
    put_record(place, "node-a", "node-b")
    pools = [
        {"matchExpressions": [{"key": "pool", "operator": "In", "values": [name]}]}
        for name in ("a", "b")
    ]
    own = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": pools}}
    required = {"staging": {"nodes": "Required"}, "worker": {"affinity": {"nodeAffinity": own}}}
    notes = upgrade(place, "helm4", CHART, merge_values(SECOND, required))
    assert "Workers run on these nodes only." in notes
    (found,) = affinity(place)["nodeAffinity"].values()
    assert [term["matchExpressions"][0] for term in found["nodeSelectorTerms"]] == [
        pool["matchExpressions"][0] for pool in pools
    ]
    # Of several terms one is enough for a node: each has the condition.
    assert [term["matchExpressions"][1:] for term in found["nodeSelectorTerms"]] == [
        [HAVE_THEM]
    ] * 2


def test_record_does_not_matter_to_a_release_that_wants_any_node(place: Namespace) -> None:
    upgrade(place, "helm3", CHART, FIRST)
    put_record(place, "node-a")
    upgrade(place, "helm3", CHART, merge_values(SECOND, {"staging": {"nodes": "Any"}}))
    assert set(affinity(place)) == {"podAntiAffinity"}
