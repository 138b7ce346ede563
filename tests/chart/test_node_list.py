"""The list of the nodes that have the data: who writes it, and which runs go by it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import CHART
from tests.chart.cases import STAGING, on_disk
from tests.chart.namespaces import empty_namespace
from tests.chart.releases import OTHER_COMMAND, RUN, Seen, see, upgrade
from tests.chart.render import Values
from tests.support.namespace import HELMS, Namespace

STAGED: Values = {**on_disk("/mnt/data"), "staging": STAGING}


def named(node: str) -> dict[str, Any]:
    """The field selector of a node of the list: a label may differ from the node's name."""
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def put_node_list(place: Namespace, *nodes: str) -> str:
    """Write the list of the nodes with the data as a master does, with its rights.

    Return what Kubernetes says when the master writes another ConfigMap.
    """
    rules = place.get("role", "hvd-master")["rules"]
    (name,) = (
        name
        for rule in rules
        for name in rule.get("resourceNames", [])
        if "create" in rule["verbs"] and name.startswith("horovod-staged")
    )
    metadata = {"name": name, "labels": {"hvdchart/node-list": "staged"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    account = f"--as=system:serviceaccount:{place.name}:hvd-master"
    apply = ("apply", "--server-side", "--filename", "-", account)
    place.kubectl(*apply, input=json.dumps(body))
    data = json.dumps({"data": dict.fromkeys(nodes, "2026-01-01T10:00:00Z")})
    place.kubectl("patch", "configmap", name, "--type=merge", "-p", data, account)
    body["metadata"] = {"name": "another"}
    return place.call(*place.client.command(*apply), input=json.dumps(body)).stderr


@dataclass(frozen=True)
class Staged:
    """A run that stages data, before and after its master has listed the nodes that have it."""

    installed: Seen
    refused: str
    same: Seen
    other: Seen


@pytest.fixture(scope="module", params=HELMS)
def staged(kubeconfig: Path, request: pytest.FixtureRequest) -> Staged:
    version = request.param
    with empty_namespace(kubeconfig) as place:
        return Staged(
            installed=see(place, version, CHART, RUN, STAGED),
            refused=put_node_list(place, "node-b", "node-a"),
            same=see(place, version, CHART, RUN, STAGED),
            other=see(place, version, CHART, RUN, STAGED, OTHER_COMMAND),
        )


def test_no_nodes_are_preferred_without_a_node_list(staged: Staged) -> None:
    assert set(staged.installed.affinity) == {"podAntiAffinity"}


def test_master_may_write_no_config_map_but_the_node_list(staged: Staged) -> None:
    assert "cannot" in staged.refused


def test_run_that_is_there_stays_as_it_is_when_the_node_list_appears(staged: Staged) -> None:
    assert set(staged.same.affinity) == {"podAntiAffinity"}


@pytest.mark.promise("next run goes to the nodes that have the data")
def test_next_run_goes_to_the_nodes_that_have_the_data(staged: Staged) -> None:
    assert staged.other.affinity["nodeAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchFields": [named(node)]}}
            for node in ("node-a", "node-b")
        ]
    }
    assert "podAntiAffinity" in staged.other.affinity


def test_next_run_keeps_the_workers_that_run(staged: Staged) -> None:
    """They have the data: none is replaced."""
    assert staged.other.revision == staged.installed.revision


POOLS = [
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": [name]}]}
    for name in ("a", "b")
]


@pytest.fixture(scope="module")
def chosen(kubeconfig: Path) -> dict[str, Seen]:
    """The next run by what the values say of the nodes that have the data."""
    pools = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": POOLS}}
    required = {"staging": {"nodes": "Required"}, "worker": {"affinity": {"nodeAffinity": pools}}}
    ignored = {"staging": {"nodes": "Any"}}
    with empty_namespace(kubeconfig) as place:
        upgrade(place, "helm4", CHART, RUN, STAGED)
        put_node_list(place, "node-a", "node-b")
        return {
            "Any": see(place, "helm3", CHART, RUN, STAGED, OTHER_COMMAND, ignored),
            "Required": see(place, "helm4", CHART, RUN, STAGED, OTHER_COMMAND, required),
        }


def test_nodes_with_the_data_can_be_ignored(chosen: dict[str, Seen]) -> None:
    assert set(chosen["Any"].affinity) == {"podAntiAffinity"}


def test_nodes_with_the_data_can_be_required_beside_what_the_values_require(
    chosen: dict[str, Seen],
) -> None:
    """Of several terms one is enough for a node: each has one node and all of its conditions."""
    node_affinity = chosen["Required"].affinity["nodeAffinity"]
    terms = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [
        {**pool, "matchFields": [named(node)]} for node in ("node-a", "node-b") for pool in POOLS
    ]
