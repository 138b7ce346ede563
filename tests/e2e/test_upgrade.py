"""A release of the chart from a registry: upgraded while a run continues, and uninstalled."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

import pytest

import hvdchart
from devtools.common.repository import CHART
from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.toolchain.tools import tool
from tests.support.namespace import Namespace
from tests.support.registry import registry

SHOW = "import os; print('RANK', os.environ['OMPI_COMM_WORLD_RANK'], flush=True)"
STAY = f"{SHOW}; import time; time.sleep(3600)"
TENANT = "tenant"
EVERYTHING = "all,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb"


@pytest.fixture(scope="class")
def version(request: pytest.FixtureRequest) -> str:
    """The Helm of the class."""
    return str(request.cls.HELM)


def helm(namespace: Namespace, version: str, *arguments: str, **values: object) -> str:
    """Run Helm as a user who has the namespace and no more, and must succeed; what it printed."""
    command = [*arguments, "--kube-as-user", TENANT]
    done = namespace.helm(*command, values=values or None, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ranks(namespace: Namespace) -> list[str]:
    """Which ranks of the present run have shown themselves."""
    lines = namespace.log("hvd").splitlines()
    return sorted(line.split("RANK ")[1] for line in lines if line.startswith("RANK "))


def evict_for_trial(namespace: Namespace, pod: str) -> str:
    """What the API server says to an eviction, such as a drain's, that is not to be carried out."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace.name},
        "deleteOptions": {"dryRun": ["All"]},
    }
    path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/eviction"
    command = [str(tool("kubectl")), "create", "--raw", path, "--filename", "-"]
    done = namespace.call(*command, input=json.dumps(eviction))
    return done.stdout + done.stderr


def left_over(namespace: Namespace) -> list[str]:
    """Names of the release's objects that are still there."""
    names = [item["metadata"]["name"] for item in namespace.get(EVERYTHING)["items"]]
    return [name for name in names if "hvd" in name]


def private_keys(namespace: Namespace) -> list[str]:
    """The private keys in the release's Secrets, as these have them: in base64."""
    selector = ("--selector", "app.kubernetes.io/instance=hvd")
    secrets = namespace.get("secrets", *selector)["items"]
    values = [value for secret in secrets for value in secret["data"].values()]
    return [value for value in values if b"PRIVATE KEY" in base64.b64decode(value)]


def assert_no_key_is_shown(namespace: Namespace, keys: Sequence[str]) -> None:
    """No line of a private key is in an object, a log or the values, but in Secrets alone."""
    selector = ("--selector", "app.kubernetes.io/instance=hvd")
    logs = namespace.kubectl("logs", *selector, "--all-containers", "--tail=-1", "--prefix")
    objects = namespace.kubectl(
        "get", "pods,jobs,statefulsets,configmaps,services,events", "--output", "json"
    )
    shown = logs + objects + helm(namespace, "helm4", "get", "values", "hvd", "--all")
    assert "RANK 1" in logs
    assert "pod/hvd-worker-0/worker" in logs
    assert len(keys) >= 2
    for key in keys:
        body = base64.b64decode(key).decode().splitlines()[1:-1]
        assert len(body) > 1
        for line in (key, *body):
            assert line not in shown


@pytest.fixture(scope="class")
def chart(
    namespace: Namespace, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """The chart in a registry, as words of `helm install`.

    A user has the role `admin` in the namespace.
    """
    for part in ("admin", "edit", "view"):
        # Together they are the role, which a cluster's controller puts together.
        role = f"--clusterrole=system:aggregate-to-{part}"
        namespace.kubectl("create", "rolebinding", part, role, f"--user={TENANT}")
    folder = tmp_path_factory.mktemp("charts")
    helm(namespace, version, "package", str(CHART), "--destination", str(folder))
    (package,) = folder.glob("*.tgz")
    with registry(folder) as address:
        repository = f"oci://{address}/charts"
        helm(namespace, version, "push", str(package), repository, "--plain-http")
        yield [f"{repository}/horovod", "--plain-http", "--version", hvdchart.__version__]


@pytest.fixture(scope="class")
def installed(chart: list[str], namespace: Namespace, version: str) -> str:
    """The Job of a run that trains."""
    master = {"args": ["python3", "-c", STAY]}
    helm(namespace, version, "install", "hvd", *chart, cleanup="Never", master=master)
    namespace.wait_for_event("Training", 240)
    return namespace.job("hvd")


@pytest.fixture(scope="class")
def upgraded(installed: str, chart: list[str], namespace: Namespace, version: str) -> None:
    """The run of another command has ended, and no pod of the first run's Job is left."""
    command = json.dumps(["python3", "-c", SHOW])
    options = ["--reset-then-reuse-values", "--set-json", f"master.args={command}"]
    options += ["--set", "podDisruptionBudget.enabled=true"]
    helm(namespace, version, "upgrade", "hvd", *chart, *options)
    namespace.wait_for_end("hvd")
    old = f"batch.kubernetes.io/job-name={installed}"
    namespace.kubectl("wait", "pods", "--for=delete", "--selector", old, "--timeout=180s")


@pytest.fixture(scope="class")
def uninstalled(upgraded: None, namespace: Namespace, version: str) -> None:
    """The release is uninstalled."""
    helm(namespace, version, "uninstall", "hvd", "--wait")


class TestUpgrade:
    HELM = "helm4"

    def test_worker_can_be_evicted_without_a_disruption_budget(
        self, installed: str, namespace: Namespace
    ) -> None:
        assert '"status":"Success"' in evict_for_trial(namespace, "hvd-worker-0")

    def test_run_of_another_command_replaces_the_first_one(
        self, upgraded: None, namespace: Namespace
    ) -> None:
        namespace.assert_completes("hvd")
        assert ranks(namespace) == ["0", "1"]

    @pytest.mark.promise("private keys are shown nowhere")
    def test_private_keys_are_shown_nowhere(self, upgraded: None, namespace: Namespace) -> None:
        assert_no_key_is_shown(namespace, private_keys(namespace))

    def test_disruption_budget_of_the_upgrade_holds(
        self, upgraded: None, namespace: Namespace
    ) -> None:
        answer = evict_for_trial(namespace, "hvd-worker-0")
        assert "violate the pod's disruption budget" in answer

    @pytest.mark.promise("uninstall leaves nothing")
    def test_uninstall_leaves_nothing(self, uninstalled: None, namespace: Namespace) -> None:
        # Helm 4 does not wait for the pods of what it removes.
        gone = "the uninstall leaves nothing"
        wait_until(lambda: not left_over(namespace), 240, gone, PROGRAM_PAUSE)


@pytest.mark.rare
class TestUpgradeWithHelm3(TestUpgrade):
    HELM = "helm3"
