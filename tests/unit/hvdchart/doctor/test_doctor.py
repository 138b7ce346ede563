"""The command `doctor`: what it finds, and how it says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hvdchart.doctor.rights import TO_DEPLOY, TO_FOLLOW
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import STATEFUL_SET, job
from tests.unit.hvdchart.played_runs import SPEC

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster(fake_cluster: FakeCluster, helm: StubProgram, programs: Path) -> FakeCluster:
    """A cluster in which nothing is missing."""
    fake_cluster.created_status = {"allowed": True}
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    fake_cluster.put("namespaces", {"metadata": {"name": "team", "labels": labels}})
    fake_cluster.put("nodes", {"metadata": {"name": "n"}, "status": {"allocatable": {}}})
    for program in ("kubectl", "buildah"):
        StubProgram(programs, program)
    return fake_cluster


@pytest.fixture
def spec_with_problems(cluster: FakeCluster, helm: StubProgram, tmp_path: Path) -> Path:
    """A spec that does not fit the cluster; Helm and all rights are missing, too."""
    helm.path.unlink()
    cluster.created_status = {"allowed": False}
    volumes = {"data": {"hostPath": "/data"}, "output": {"pvc": "results"}}
    spec = tmp_path / "run.spec.yaml"
    spec.write_text(json.dumps({**SPEC, "volumes": volumes}))
    cluster.put(
        "resourcequotas",
        {
            "metadata": {"name": "q"},
            "spec": {},
            "status": {"hard": {"pods": "1"}, "used": {}},
        },
    )
    return spec


def test_a_cluster_without_problems_exits_with_0(hvdchart: Command, cluster: FakeCluster) -> None:
    """Each finding is a line."""
    done = hvdchart("doctor")
    assert (done.code, done.errors) == (0, ""), done.output
    assert "PROBLEM" not in done.output
    lines = done.output.splitlines()
    assert lines[0] == "ok       Helm                    helm is version 4.3.1"
    assert "ok       cluster                 Kubernetes v1.34.4" in lines
    assert "ok       image builder           buildah" in lines


@pytest.mark.parametrize("output", [None, "a: b", "v2.17.0"])
def test_helm_that_cannot_be_used_is_a_problem_with_its_remedy(
    hvdchart: Command, cluster: FakeCluster, programs: Path, output: str | None
) -> None:
    """A colon in the name or in the output is no end of the problem."""
    name = "my: helm"
    if output is not None:
        (programs / name).write_text(f"#!/bin/sh\necho '{output}'\n")
        (programs / name).chmod(0o755)
    done = hvdchart("doctor", "--helm", name, "-o", "json")
    (finding,) = (finding for finding in json.loads(done.output) if finding["subject"] == "Helm")
    assert finding["state"] == "problem"
    assert name in finding["text"]
    assert "--helm PATH" in finding["remedy"]
    assert name not in finding["remedy"]


def test_workers_without_a_master_are_a_problem(hvdchart: Command, cluster: FakeCluster) -> None:
    """A quota, for instance, has refused the Job: nothing in the cluster ends them."""
    cluster.put("statefulsets", STATEFUL_SET)
    done = hvdchart("doctor", "-o", "json")
    (finding,) = (finding for finding in json.loads(done.output) if finding["state"] == "problem")
    assert finding["text"].startswith("hvd: 2 workers ")
    assert "hvdchart undeploy hvd -n team" in finding["remedy"]
    cluster.put("jobs", job())
    assert hvdchart("doctor").code == 0


def test_problems_are_found_with_their_remedies_and_counted(
    hvdchart: Command, spec_with_problems: Path
) -> None:
    done = hvdchart("doctor", spec_with_problems, "-o", "json")
    assert (done.code, done.errors) == (7, "hvdchart: 6 problems found\n")
    findings = json.loads(done.output)
    problems = [finding for finding in findings if finding["state"] == "problem"]
    assert all(problem["remedy"] for problem in problems)
    texts = {problem["subject"]: problem["text"] for problem in problems}
    assert texts.keys() == {
        "Helm",
        TO_DEPLOY,
        TO_FOLLOW,
        "Pod Security",
        "quotas",
        "claim results",
    }
    assert "privileged for the hostPath volume data" in texts["Pod Security"]


def test_volume_of_nfs_is_refused_by_pod_security(
    hvdchart: Command, cluster: FakeCluster, script: Path
) -> None:
    options = ["--image", "a/b:1", "--volume", "data=nfs:srv:/exp:/data"]
    done = hvdchart("doctor", script, *options, "-o", "json")
    assert done.code == 7
    findings = json.loads(done.output)
    (finding,) = (finding for finding in findings if finding["subject"] == "Pod Security")
    assert finding["state"] == "problem"
    assert "nfs volume data" in finding["text"]


def test_remedies_for_a_script_name_its_options(
    hvdchart: Command, cluster: FakeCluster, script: Path
) -> None:
    hard = {"limits.cpu": "100"}
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard}}
    cluster.put("resourcequotas", quota)
    output = hvdchart("doctor", script).output
    assert "`--cpu`, `--set values.master.resources.limits.cpu`" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refused", "words", "code", "expected"),
    [
        # What one may not read is no problem.
        (
            [
                "namespaces get",
                "resourcequotas list",
                "storageclasses list",
                "nodes list",
                "endpointslices list",
            ],
            [],
            0,
            dict.fromkeys(("namespace", "quotas", "DNS", "storage", "GPUs"), "unknown"),
        ),
        (["version list"], [], 7, {"cluster": "problem", "Helm": "ok"}),
        ([], ["-n", "none"], 7, {"cluster": "ok", "namespace": "problem"}),
        ([], [], 0, {"image builder": "unknown", TO_DEPLOY: "ok"}),
    ],
)
def test_what_cannot_be_examined_is_unknown_or_a_problem(
    hvdchart: Command,
    cluster: FakeCluster,
    programs: Path,
    refused: list[str],
    words: list[str],
    code: int,
    expected: dict[str, str],
) -> None:
    cluster.refusals = dict.fromkeys(refused, (403, "no right"))
    (programs / "buildah").write_text("#!/bin/sh\nexit 1\n")
    done = hvdchart("doctor", *words, "-o", "json")
    assert done.code == code
    states = {finding["subject"]: finding["state"] for finding in json.loads(done.output)}
    assert states.items() >= expected.items()
