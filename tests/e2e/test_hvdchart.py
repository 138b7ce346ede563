"""The command `hvdchart` against a real cluster."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.localkube.instance import current_instance
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from tests.e2e.command import hvdchart, hvdchart_in_namespace, namespace_options, write_spec
from tests.support.namespace import Namespace

RANK = "import os; print('I am rank', os.environ['OMPI_COMM_WORLD_RANK'])"


@pytest.fixture(scope="class")
def helm(request: pytest.FixtureRequest) -> str:
    """The Helm of the class."""
    return str(request.cls.HELM)


@pytest.fixture(scope="class")
def deployed(
    helm: str, namespace: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> subprocess.CompletedProcess[str]:
    """A `deploy` that has followed its run to the end."""
    spec = write_spec(tmp_path_factory.mktemp("spec"), namespace, ["python3", "-c", RANK])
    return hvdchart(namespace, "deploy", spec, *namespace_options(namespace, helm))


@pytest.fixture(scope="class")
def undeployed(helm: str, deployed: subprocess.CompletedProcess[str], namespace: Namespace) -> None:
    """The run is gone."""
    hvdchart(namespace, "undeploy", "hvd", *namespace_options(namespace, helm))


class TestDeployToUndeploy:
    HELM = "helm4"

    def test_deploy_prints_the_plan_and_the_end(
        self, deployed: subprocess.CompletedProcess[str]
    ) -> None:
        assert "revision 1: 2 ranks on 2 workers" in deployed.stderr
        assert "hvd: finished" in deployed.stderr

    def test_deploy_shows_the_output_of_ranks_and_workers(
        self, deployed: subprocess.CompletedProcess[str]
    ) -> None:
        lines = deployed.stdout.splitlines()
        assert {"I am rank 0", "I am rank 1"} <= {line.rpartition("] ")[2] for line in lines}
        assert any(line.startswith("[worker-") for line in lines)

    @pytest.mark.usefixtures("deployed")
    def test_logs_shows_the_masters_last_line(self, namespace: Namespace) -> None:
        again = hvdchart_in_namespace(namespace, "logs", "hvd", "--master", "--tail", "1")
        assert again.stdout.endswith("workers scaled to 0\n"), again.stdout + again.stderr

    @pytest.mark.usefixtures("deployed")
    def test_status_has_the_state_and_the_attempt(self, namespace: Namespace) -> None:
        state = json.loads(hvdchart_in_namespace(namespace, "status", "hvd", "-o", "json").stdout)
        assert state["state"] == "finished"
        assert state["attempt"] == 1

    @pytest.mark.usefixtures("undeployed")
    def test_undeploy_leaves_nothing(self, namespace: Namespace) -> None:
        namespace.wait_until_gone("all,secrets")


@pytest.mark.rare
class TestDeployToUndeployWithHelm3(TestDeployToUndeploy):
    HELM = "helm3"


def test_deploy_and_status_of_a_failed_run_exit_with_8_and_its_reason(
    namespace: Namespace, tmp_path: Path
) -> None:
    command = ["pythn", "train.py"]
    spec = write_spec(tmp_path, namespace, command, train={"command": command, "backoffLimit": 3})
    done = hvdchart(namespace, "deploy", spec, *namespace_options(namespace), code=8)
    cause = r"rank \d on hvd-worker-\d: exit code 78"
    assert re.search(f"run hvd failed: {cause}", done.stderr)
    assert "command 'pythn' is not on PATH" in done.stdout
    status = hvdchart(namespace, "status", "hvd", "--namespace", namespace.name, code=8)
    assert re.search(f"why: {cause}", status.stdout)
    assert len(namespace.master_events("Training")) == 1, "a retry could not help"


# The namespace refuses the volume of the run of the tests below, and admits another one. The last
# change names a class that does not exist, so that the master's pod is refused too.
WITHOUT_CLASS = [
    "--set",
    "volumes.data.hostPath=null",
    "--set",
    "volumes.data.emptyDir={}",
    "--set",
    "values.priorityClassName=no-such-class",
]


@pytest.fixture(scope="class")
def spec_of_no_pods(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A spec whose pods cannot start."""
    return write_spec(
        tmp_path_factory.mktemp("spec"),
        namespace,
        ["python3", "-V"],
        volumes={"data": {"hostPath": "/mnt/data", "readOnly": True}},
    )


class TestPodsThatCannotStart:
    def test_status_names_the_refusal_of_a_volume(
        self, namespace: Namespace, spec_of_no_pods: str
    ) -> None:
        deploy_detached(namespace, spec_of_no_pods)
        reason = _reason(namespace, "violates PodSecurity")
        assert reason["state"] == "waiting"

    def test_status_names_the_class_that_does_not_exist(
        self, namespace: Namespace, spec_of_no_pods: str
    ) -> None:
        deploy_detached(namespace, spec_of_no_pods, *WITHOUT_CLASS)
        reason = _reason(namespace, "no PriorityClass with name no-such-class was found")
        assert reason["state"] == "waiting"
        assert "priorityClassName" in reason["remedy"]


def deploy_detached(namespace: Namespace, spec: str, *changes: str) -> None:
    """Deploy the spec with changes, as the run that is there or as a new one."""
    hvdchart(namespace, "deploy", spec, *changes, *namespace_options(namespace), "--detach")


def _reason(namespace: Namespace, expected: str) -> dict[str, Any]:
    """The status, once its reason contains the expected text."""
    current: dict[str, Any] = {}

    def has_reason() -> bool:
        done = hvdchart_in_namespace(namespace, "status", "hvd", "-o", "json", code=None)
        current.update(json.loads(done.stdout))
        return expected in current["reason"]

    wait_until(has_reason, 180, f"a status with {expected!r}", PROGRAM_PAUSE)
    return current


def test_discover_writes_a_spec_of_the_clusters_nodes(namespace: Namespace) -> None:
    # Other tests create nodes.
    name = current_instance().node_name
    done = hvdchart(namespace, "discover", "--selector", f"kubernetes.io/hostname={name}")
    assert name in done.stdout
    spec = parse_spec(done.stdout.encode())
    assert [group.count for group in spec.nodes] == [1]
    plan = make_plan(spec).groups[0]
    assert plan.cpu is not None
    capacity = namespace.get("node", name)["status"]["capacity"]
    assert plan.cpu < int(capacity["cpu"]) * 1000, "nothing is left for other pods"


def test_image_check_in_cluster_runs_and_deletes_a_pod(namespace: Namespace) -> None:
    where = ("--in-cluster", "--namespace", namespace.name)
    good = hvdchart(namespace, "image", "check", namespace.image, *where)
    assert "with mpi, gloo" in good.stdout
    gone = hvdchart(namespace, "image", "check", "registry.invalid/no-such:1", *where, code=7)
    assert "ImagePull" in gone.stderr
    assert namespace.get("pods")["items"] == [], "the pod was not deleted"
