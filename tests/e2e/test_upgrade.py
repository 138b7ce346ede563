"""From each earlier chart version to this one, both out of a registry, while a run goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from devtools.toolchain.tools import tool
from tests.chart.registry import registry
from tests.e2e.cluster import CHART, HELMS, Namespace
from tests.waiting import PROGRAM_PAUSE, wait_until

# `python -m devtools.release keep` packaged them.
EARLIER = sorted(Path(__file__).parents[1].glob("released/horovod-*.tgz"))
SHOW = "import os; print('RANK', os.environ['OMPI_COMM_WORLD_RANK'], flush=True)"
STAY = f"{SHOW}; import time; time.sleep(3600)"
TENANT = "tenant"
EVERYTHING = "all,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """Where charts are pushed to."""
    with registry(tmp_path) as address:
        yield f"oci://{address}/charts"


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


def assert_no_key_is_shown(namespace: Namespace, keys: dict[str, str]) -> None:
    """No line of a private key is in an object, a log or the values; the Secret alone has them."""
    selector = ("--selector", "app.kubernetes.io/instance=hvd")
    logs = namespace.kubectl("logs", *selector, "--all-containers", "--tail=-1", "--prefix")
    objects = namespace.kubectl(
        "get", "pods,jobs,statefulsets,configmaps,services,events", "--output", "json"
    )
    shown = logs + objects + helm(namespace, "helm4", "get", "values", "hvd", "--all")
    assert "RANK 1" in logs
    assert "pod/hvd-worker-0/worker" in logs
    for key in keys.values():
        body = base64.b64decode(key).decode().splitlines()[1:-1]
        assert len(body) > 1
        for line in (key, *body):
            assert line not in shown


@pytest.mark.parametrize("version", HELMS)
@pytest.mark.parametrize("earlier", EARLIER, ids=lambda package: package.stem)
def test_upgrade_from_an_earlier_chart_replaces_the_run_and_keeps_its_keys(
    namespace: Namespace, repository: str, tmp_path: Path, earlier: Path, version: str
) -> None:
    for part in ("admin", "edit", "view"):
        # Together they are the role `admin`, which a cluster's controller puts together.
        role = f"--clusterrole=system:aggregate-to-{part}"
        namespace.kubectl("create", "rolebinding", part, role, f"--user={TENANT}")
    current = YAML(typ="safe").load((CHART / "Chart.yaml").read_text())["version"]
    helm(namespace, version, "package", str(CHART), "--destination", str(tmp_path))
    for package in (earlier, tmp_path / f"horovod-{current}.tgz"):
        helm(namespace, version, "push", str(package), repository, "--plain-http")
    chart = [f"{repository}/horovod", "--plain-http", "--version"]

    running = {"args": ["python3", "-c", STAY]}
    before = [*chart, earlier.stem.removeprefix("horovod-")]
    helm(namespace, version, "install", "hvd", *before, cleanup="Never", master=running)
    namespace.wait_for_event("Training", 240)
    first = namespace.job("hvd")
    keys = namespace.get("secret", "hvd-ssh")["data"]

    ending = json.dumps(["python3", "-c", SHOW])
    changed = ["--reset-then-reuse-values", "--set-json", f"master.args={ending}"]
    changed += ["--set", "podDisruptionBudget.enabled=true"]
    assert '"status":"Success"' in evict_for_trial(namespace, "hvd-worker-0")
    helm(namespace, version, "upgrade", "hvd", *chart, current, *changed)
    assert first not in namespace.jobs("hvd"), "the run of the previous chart goes on"
    namespace.assert_completes("hvd")
    assert ranks(namespace) == ["0", "1"]
    # Logs are read below, of pods that stay.
    old = f"batch.kubernetes.io/job-name={first}"
    namespace.kubectl("wait", "pods", "--for=delete", "--selector", old, "--timeout=180s")
    assert namespace.get("secret", "hvd-ssh")["data"] == keys
    assert_no_key_is_shown(namespace, keys)
    assert "violate the pod's disruption budget" in evict_for_trial(namespace, "hvd-worker-0")

    made = namespace.get(EVERYTHING, "--selector", "helm.sh/chart")["items"]
    stale = [
        f"{item['kind']} {item['metadata']['name']}"
        for item in made
        if item["metadata"]["labels"]["helm.sh/chart"] != f"horovod-{current}"
    ]
    assert len(made) > 7
    assert stale == [], "left over of the previous chart"
    helm(namespace, version, "uninstall", "hvd", "--wait")
    # Helm 4 does not wait for the pods of what it removes.
    gone = "the uninstall leaves nothing"
    wait_until(lambda: not left_over(namespace), 240, gone, PROGRAM_PAUSE)
