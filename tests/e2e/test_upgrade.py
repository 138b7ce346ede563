"""From each earlier chart version to this one, both out of a registry, while a run goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.toolchain.tools import tool
from tests.support.namespace import CHART, Namespace, new_namespace
from tests.support.openssh.image import openssh_image
from tests.support.registry import registry

# `python -m devtools.release keep` packaged them.
EARLIER = sorted(Path(__file__).parents[1].glob("released/horovod-*.tgz"))
SHOW = "import os; print('RANK', os.environ['OMPI_COMM_WORLD_RANK'], flush=True)"
STAY = f"{SHOW}; import time; time.sleep(3600)"
TENANT = "tenant"
EVERYTHING = "all,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb"


@pytest.fixture(scope="class", params=EARLIER, ids=lambda package: package.stem)
def earlier(request: pytest.FixtureRequest) -> Path:
    """The package of an earlier chart."""
    package: Path = request.param
    return package


@pytest.fixture(scope="class")
def namespace(earlier: Path, kubeconfig: Path) -> Iterator[Namespace]:
    """A namespace for each earlier chart, with an image that has what a chart with SSH needs."""
    with new_namespace(f"upgrade-{earlier.stem}", kubeconfig, openssh_image()) as made:
        yield made


@pytest.fixture(scope="class")
def version(request: pytest.FixtureRequest) -> str:
    """The Helm of the class."""
    return str(request.cls.HELM)


def helm(namespace: Namespace, version: str, *arguments: str, **values: object) -> str:
    """Run Helm as a user who has the namespace and no more, and must succeed; what it printed."""
    command = [*arguments, "--kube-as-user", TENANT]
    done = namespace.helm(*command, values=values or None, version=version, preload=True)
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


def read_secrets(namespace: Namespace) -> dict[str, dict[str, str]]:
    """The data of the release's Secrets, which have the keys, by their names."""
    selector = ("--selector", "app.kubernetes.io/instance=hvd")
    listed = namespace.get("secrets", *selector)["items"]
    return {secret["metadata"]["name"]: secret["data"] for secret in listed}


def private_keys(secrets: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The private keys in Secrets, as these have them: in base64."""
    values = [value for data in secrets.values() for value in data.values()]
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


@dataclass(frozen=True)
class Charts:
    """The earlier chart and the present one, as `helm install` names what a registry has."""

    repository: str
    earlier: str
    current: str

    def words(self, version: str) -> list[str]:
        return [f"{self.repository}/horovod", "--plain-http", "--version", version]


@pytest.fixture(scope="class")
def charts(
    namespace: Namespace,
    version: str,
    earlier: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Charts]:
    """Both charts in a registry, and a user who has the role `admin` in the namespace."""
    for part in ("admin", "edit", "view"):
        # Together they are the role, which a cluster's controller puts together.
        role = f"--clusterrole=system:aggregate-to-{part}"
        namespace.kubectl("create", "rolebinding", part, role, f"--user={TENANT}")
    folder = tmp_path_factory.mktemp("charts")
    current = YAML(typ="safe").load((CHART / "Chart.yaml").read_text())["version"]
    helm(namespace, version, "package", str(CHART), "--destination", str(folder))
    with registry(folder) as address:
        repository = f"oci://{address}/charts"
        for package in (earlier, folder / f"horovod-{current}.tgz"):
            helm(namespace, version, "push", str(package), repository, "--plain-http")
        yield Charts(repository, earlier.stem.removeprefix("horovod-"), current)


@dataclass(frozen=True)
class Run:
    """The Job of the earlier chart's run, and the Secrets of the release then."""

    job: str
    secrets: dict[str, dict[str, str]]


@pytest.fixture(scope="class")
def installed(charts: Charts, namespace: Namespace, version: str) -> Run:
    """A run of the earlier chart trains."""
    master = {"args": ["python3", "-c", STAY]}
    words = charts.words(charts.earlier)
    helm(namespace, version, "install", "hvd", *words, cleanup="Never", master=master)
    namespace.wait_for_event("Training", 240)
    return Run(namespace.job("hvd"), read_secrets(namespace))


@pytest.fixture(scope="class")
def upgraded(installed: Run, charts: Charts, namespace: Namespace, version: str) -> Run:
    """The run of the present chart has ended, and no pod of the earlier run's Job is left."""
    command = json.dumps(["python3", "-c", SHOW])
    options = ["--reset-then-reuse-values", "--set-json", f"master.args={command}"]
    options += ["--set", "podDisruptionBudget.enabled=true"]
    helm(namespace, version, "upgrade", "hvd", *charts.words(charts.current), *options)
    namespace.wait_for_end("hvd")
    old = f"batch.kubernetes.io/job-name={installed.job}"
    namespace.kubectl("wait", "pods", "--for=delete", "--selector", old, "--timeout=180s")
    return installed


@pytest.fixture(scope="class")
def uninstalled(upgraded: Run, namespace: Namespace, version: str) -> None:
    """The release is uninstalled."""
    helm(namespace, version, "uninstall", "hvd", "--wait")


class TestUpgradeFromAnEarlierChart:
    HELM = "helm4"

    def test_worker_of_the_earlier_run_can_be_evicted(
        self, installed: Run, namespace: Namespace
    ) -> None:
        assert '"status":"Success"' in evict_for_trial(namespace, "hvd-worker-0")

    def test_upgrade_replaces_the_run(self, upgraded: Run, namespace: Namespace) -> None:
        assert upgraded.job not in namespace.jobs("hvd"), "the run of the previous chart goes on"

    def test_upgrade_keeps_the_keys_of_agents_and_makes_them_after_ssh(
        self, upgraded: Run, namespace: Namespace
    ) -> None:
        secrets = read_secrets(namespace)
        assert secrets.keys() == {"hvd-agent-master", "hvd-agent-worker"}
        kept = secrets.keys() & upgraded.secrets.keys()
        assert {name: secrets[name] for name in kept} == {
            name: upgraded.secrets[name] for name in kept
        }
        assert kept or "hvd-ssh" in upgraded.secrets

    def test_run_of_the_present_chart_finishes(self, upgraded: Run, namespace: Namespace) -> None:
        namespace.assert_completes("hvd")
        assert ranks(namespace) == ["0", "1"]

    @pytest.mark.promise("private keys are shown nowhere")
    def test_private_keys_are_shown_nowhere(self, upgraded: Run, namespace: Namespace) -> None:
        now = private_keys(read_secrets(namespace))
        assert_no_key_is_shown(namespace, [*now, *private_keys(upgraded.secrets)])

    def test_disruption_budget_of_the_upgrade_holds(
        self, upgraded: Run, namespace: Namespace
    ) -> None:
        answer = evict_for_trial(namespace, "hvd-worker-0")
        assert "violate the pod's disruption budget" in answer

    def test_objects_are_those_of_the_present_chart(
        self, upgraded: Run, charts: Charts, namespace: Namespace
    ) -> None:
        made = namespace.get(EVERYTHING, "--selector", "helm.sh/chart")["items"]
        stale = [
            f"{item['kind']} {item['metadata']['name']}"
            for item in made
            if item["metadata"]["labels"]["helm.sh/chart"] != f"horovod-{charts.current}"
        ]
        assert len(made) > 7
        assert stale == [], "left over of the previous chart"

    @pytest.mark.promise("uninstall leaves nothing")
    def test_uninstall_leaves_nothing(self, uninstalled: None, namespace: Namespace) -> None:
        # Helm 4 does not wait for the pods of what it removes.
        gone = "the uninstall leaves nothing"
        wait_until(lambda: not left_over(namespace), 240, gone, PROGRAM_PAUSE)


@pytest.mark.rare
class TestUpgradeFromAnEarlierChartWithHelm3(TestUpgradeFromAnEarlierChart):
    HELM = "helm3"
