"""doctor: with a small API server, and a Helm that answers as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.doctor.test_room import ALL
from tests.unit.hvdchart.runs import SPEC

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster(fake_cluster: FakeCluster, helm: StubProgram, programs: Path) -> FakeCluster:
    """A cluster in which nothing is missing."""
    fake_cluster.created_status = {"resourceRules": [ALL], "incomplete": False}
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    fake_cluster.put("namespaces", {"metadata": {"name": "team", "labels": labels}})
    fake_cluster.put("nodes", {"metadata": {"name": "n"}, "status": {"allocatable": {}}})
    for program in ("kubectl", "buildah"):
        StubProgram(programs, program)
    return fake_cluster


def states(done: Any) -> dict[str, str]:
    return {item["subject"]: item["state"] for item in json.loads(done.output)}


def test_a_cluster_without_problems_exits_with_0(hvdchart: Command, cluster: FakeCluster) -> None:
    done = hvdchart("doctor")
    assert (done.code, done.errors) == (0, ""), done.output
    lines = done.output.splitlines()
    assert lines[0] == "ok       Helm                    helm is version 3.19.0"
    assert "ok       cluster                 Kubernetes v1.34.4" in lines
    assert "ok       image builder           buildah" in lines
    assert "PROBLEM" not in done.output
    assert "not on PATH" not in done.output


def test_each_problem_is_counted_and_has_a_fix(
    hvdchart: Command, cluster: FakeCluster, helm: StubProgram, tmp_path: Path
) -> None:
    helm.path.unlink()
    cluster.created_status = {"resourceRules": [], "incomplete": False}
    volumes = {"data": {"hostPath": "/data"}, "output": {"pvc": "results"}}
    spec = tmp_path / "run.spec.yaml"
    spec.write_text(json.dumps({**SPEC, "volumes": volumes}))
    cluster.put("resourcequotas", {
        "metadata": {"name": "q"}, "spec": {}, "status": {"hard": {"pods": "1"}, "used": {}},
    })  # fmt: skip
    done = hvdchart("doctor", spec, "-o", "json")
    assert done.code == 7
    findings = {item["subject"]: item for item in json.loads(done.output)}
    problems = [item for item in findings.values() if item["state"] == "problem"]
    assert {item["subject"] for item in problems} == {
        "Helm", "rights to deploy", "rights to follow a run", "Pod Security", "quotas",
        "claim results",
    }  # fmt: skip
    assert all(item["fix"] for item in problems)
    assert done.errors == "hvdchart: 6 problems found\n"
    assert "the hostPath volume data needs privileged" in findings["Pod Security"]["text"]


def test_what_one_may_not_read_is_unknown_and_no_problem(
    hvdchart: Command, cluster: FakeCluster
) -> None:
    for kind in ("namespaces get", "resourcequotas list", "storageclasses list", "nodes list"):
        cluster.refusals[kind] = (403, "no right")
    cluster.refusals["endpointslices list"] = (403, "no right")
    done = hvdchart("doctor", "-o", "json")
    assert done.code == 0
    by_subject = states(done)
    assert {by_subject[name] for name in ("namespace", "quotas", "DNS", "storage", "GPUs")} == {
        "unknown"
    }


def test_a_namespace_that_is_missing_ends_the_examination(
    hvdchart: Command, cluster: FakeCluster
) -> None:
    done = hvdchart("doctor", "-n", "none")
    assert done.code == 7
    lines = done.output.splitlines()
    assert lines[-2] == "PROBLEM  namespace      there is no namespace none"
    assert "--create-namespace" in lines[-1]


@pytest.mark.slow
def test_incomplete_rules_are_completed_by_asking(hvdchart: Command, cluster: FakeCluster) -> None:
    cluster.created_status = {"resourceRules": [], "incomplete": True, "allowed": True}
    assert states(hvdchart("doctor", "-o", "json"))["rights to deploy"] == "ok"


def test_a_missing_builder_is_a_problem_where_one_is_asked_for(
    hvdchart: Command, cluster: FakeCluster, programs: Path
) -> None:
    (programs / "buildah").write_text("#!/bin/sh\nexit 1\n")
    for more, code in (([], 0), (["--builder"], 7)):
        done = hvdchart("doctor", *more)
        assert done.code == code
        assert "none of docker, podman, buildah works here" in done.output
