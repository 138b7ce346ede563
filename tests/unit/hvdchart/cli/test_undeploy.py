"""The command `undeploy`, also of releases that Helm does not know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import (
    JOB,
    LABELS,
    OWN_CHART,
    STATEFUL_SET,
    job,
)

pytestmark = pytest.mark.timeout(120)


def owned(item: dict[str, Any], namespace: str = "team") -> dict[str, Any]:
    """An object as Helm creates it for release hvd of this namespace."""
    notes = {"meta.helm.sh/release-name": "hvd", "meta.helm.sh/release-namespace": namespace}
    return {**item, "metadata": {**item["metadata"], "annotations": notes}}


@pytest.fixture
def unknown(running: FakeCluster, helm: StubProgram) -> FakeCluster:
    """A run of a release that Helm does not know, beside an object of another namespace's.

    Another tool may have installed it, which keeps its releases elsewhere.
    """
    helm.answer("uninstall", errors="Error: uninstall: release: not found\n", code=1)
    running.put("jobs", owned(job()))
    running.put("statefulsets", owned(STATEFUL_SET))
    running.put("secrets", owned({"metadata": {"name": "theirs", "labels": LABELS}}, "other"))
    return running


def test_undeploy_uninstalls_the_release(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    done = hvdchart("undeploy", "hvd", "--context", "other", "--namespace", "mine")
    assert done.code == 0
    arguments = helm.calls[-1].arguments
    assert (arguments[:2], arguments[-1]) == (["uninstall", "hvd"], "other")
    assert {"mine", "--wait"} <= set(arguments)


def test_undeploy_of_an_unknown_run_says_how_to_list_all(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    helm.answer("uninstall", errors="Error: uninstall: release: not found\n", code=1)
    missing = hvdchart("undeploy", "hvd")
    assert missing.code == 7
    assert missing.errors.startswith("hvdchart: no run hvd in namespace team: ")


def test_undeploy_removes_a_release_whose_objects_are_gone(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    """Helm alone knows it."""
    helm.answer("get", json.dumps(OWN_CHART))
    assert hvdchart("undeploy", "hvd").code == 0
    assert "uninstall" in helm.commands()


def test_undeploy_leaves_an_active_run_of_a_release_unknown_to_helm(
    hvdchart: Command, unknown: FakeCluster
) -> None:
    done = hvdchart("undeploy", "hvd")
    assert (done.code, unknown.names("jobs")) == (7, [JOB])
    assert unknown.names("statefulsets") == ["hvd-worker"]
    assert f"kubectl delete job {JOB} -n team" in done.errors


def test_undeploy_removes_what_a_release_unknown_to_helm_has_left(
    hvdchart: Command, unknown: FakeCluster
) -> None:
    unknown.put("jobs", owned(job(suspend=True)))
    done = hvdchart("undeploy", "hvd")
    assert (done.code, unknown.names("jobs"), unknown.names("secrets")) == (0, [], ["theirs"])
    assert f"jobs {JOB}\n" in done.errors


def test_undeploy_continues_after_an_object_that_is_deleted_meanwhile(
    hvdchart: Command, unknown: FakeCluster
) -> None:
    """The garbage collector deletes objects of an owner that is gone."""
    unknown.put("jobs", owned(job(suspend=True)))
    unknown.refusals["jobs delete"] = (404, "not found")
    done = hvdchart("undeploy", "hvd")
    assert (done.code, unknown.names("statefulsets")) == (0, []), done.errors
    assert f"jobs {JOB}\n" not in done.errors


def test_a_misspelt_name_does_not_keep_other_runs_from_being_removed(
    hvdchart: Command, unknown: FakeCluster
) -> None:
    unknown.put("jobs", owned(job(suspend=True)))
    done = hvdchart("undeploy", "nosuch", "hvd")
    assert done.code == 7
    assert "no run nosuch" in done.errors
    assert (unknown.names("jobs"), unknown.names("statefulsets")) == ([], [])
