"""`deploy` of an unchanged release, against real Helms and a real API server.

What the library takes for unchanged, Helm leaves as it is.
"""

from __future__ import annotations

from typing import Any

import pytest

from devtools.toolchain.tools import tool
from hvdchart.run.cluster import Cluster
from hvdchart.run.helm import Helm, upgrade
from hvdchart.run.installed import unchanged_revision
from hvdchart.values.merge import merge_values
from tests.chart.render import Values
from tests.chart.test_kept_run import HELMS, RUN, end
from tests.chart.test_watching import OUTPUT
from tests.e2e.cluster import Namespace

KINDS = (
    "jobs,statefulsets,deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,"
    "networkpolicies,poddisruptionbudgets"
)
# With an object of each kind that the chart renders without further APIs.
EVERYTHING: Values = {
    **RUN,
    **OUTPUT,
    "cleanup": "OnSuccess",
    "image": {"repository": "registry.example/team/resnet", "tag": "1.0"},
    "code": {"files": {"train.py": "print(1)"}},
    "master": {**RUN["master"], "resources": {"requests": {"cpu": 0.5, "memory": "1024Mi"}}},
    "tensorboard": {"enabled": True},
    "metrics": {"enabled": True},
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {"enabled": True},
}


def written(place: Namespace) -> dict[str, Any]:
    """The objects of the release without what controllers write."""
    items = place.get(KINDS, "--selector", "app.kubernetes.io/instance=hvd")["items"]
    return {
        f"{item['kind']} {item['metadata']['name']}": {
            **{key: value for key, value in item.items() if key not in ("metadata", "status")},
            **{key: item["metadata"].get(key) for key in ("uid", "labels")},
        }
        for item in items
    }


def generations(place: Namespace) -> list[int]:
    """How often the spec of the run's objects was written."""
    return [item["metadata"]["generation"] for item in place.get("jobs,statefulsets")["items"]]


class Release:
    """The release `hvd` in a namespace."""

    def __init__(self, place: Namespace, version: str, values: Values) -> None:
        self.place, self.values = place, values
        self._helm = Helm(str(tool(version)))

    def upgrade(self) -> int:
        return upgrade("hvd", self.place.name, self.values, self._helm).revision

    def unchanged(self) -> int | None:
        return unchanged_revision(Cluster.connect(namespace=self.place.name), "hvd", self.values)


@pytest.fixture(params=HELMS)
def release(
    place: Namespace, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Release:
    """A release with all objects, installed once."""
    monkeypatch.setenv("KUBECONFIG", str(place.kubeconfig))
    place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=180s")
    made = Release(place, request.param, EVERYTHING)
    assert made.unchanged() is None
    assert made.upgrade() == 1
    return made


def test_unchanged_release_is_one_that_helm_leaves(release: Release) -> None:
    place = release.place
    assert release.unchanged() == 1
    before, times = written(place), generations(place)
    assert len({name.partition(" ")[0] for name in before}) == KINDS.count(",") + 1, before.keys()
    assert release.upgrade() == 2
    assert (written(place), generations(place)) == (before, times)
    assert release.unchanged() == 2

    place.kubectl("delete", "networkpolicies", "--all")
    assert release.unchanged() is None
    assert release.upgrade() == 3
    assert release.unchanged() == 3, "Helm has created them again"
    assert written(place).keys() == before.keys()


def test_run_that_has_ended_is_unchanged_until_somebody_scales_it(release: Release) -> None:
    """As the chart decides it (templates/_run.tpl), which the library repeats."""
    place = release.place
    end(place, "SuccessCriteriaMet", "Complete")
    release.values = merge_values(EVERYTHING, {"master": {"suspend": False}})
    assert release.upgrade() == 2
    assert place.replicas("hvd-worker") == 0
    assert release.unchanged() == 2
    before, times = written(place), generations(place)
    assert release.upgrade() == 3
    assert (written(place), generations(place)) == (before, times)
    place.kubectl("scale", "statefulset", "hvd-worker", "--replicas=1")
    assert release.unchanged() is None
    # Helm 3 would scale it to zero again, and Helm 4 names who has scaled it.
    place.kubectl("scale", "statefulset", "hvd-worker", "--replicas=0")
    assert release.unchanged() == 3
