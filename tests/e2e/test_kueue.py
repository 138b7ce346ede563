"""Runs of the chart in a queue of Kueue, whose controller runs here. Rare: Kueue is built first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.toolchain.tools import KUEUE, module_folder
from tests.controllers import ALONE, CERTIFICATES, Controller, running
from tests.e2e.cluster import Namespace, Values, conditions
from tests.e2e.volumes import on_node
from tests.ports import find_port
from tests.waiting import PROGRAM_PAUSE, wait_until

pytestmark = pytest.mark.rare

API = "kueue.x-k8s.io/v1beta2"
CONFIGURATION = {
    **ALONE,
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "internalCertManagement": {"enable": False},
    "integrations": {"frameworks": ["batch/job", "pod", "statefulset"]},
}
# The webhooks that it needs for these.
KINDS = ("pods", "jobs", "statefulsets", "workloads", "clusterqueues", "resourceflavors", "cohorts")
# A run of two workers has three pods of 100 thousandths of a CPU each: there is room for one run,
# and not for two.
EACH = "100m"
QUOTA = "500m"
# Kueue looks for certificates of its metrics in this folder of /etc, whatever its configuration
# says; so /etc is that of this machine with one folder more, for Kueue alone.
WITH_OWN_ETC = (
    'mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1,workdir=$2" /etc; shift 2; exec "$@"'
)
METRICS = "kueue/metrics/certs"


@pytest.fixture(scope="class")
def queue(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A namespace whose LocalQueue `team` has room for one run; Kueue admits runs there."""
    folder = module_folder("kueue", KUEUE) / "config" / "components"
    own = tmp_path_factory.mktemp("kueue")
    upper = own / "upper"
    work = own / "work"
    (upper / METRICS).parent.mkdir(parents=True)
    (upper / METRICS).symlink_to(own / CERTIFICATES)
    work.mkdir()
    kueue = Controller(
        "kueue",
        crds=sorted((folder / "crd" / "bases").glob("*.yaml")),
        command=("unshare", "--mount", "sh", "-ec", WITH_OWN_ETC, "sh", str(upper), str(work)),
        arguments=("--feature-gates=VisibilityOnDemand=false",),
        webhooks=folder / "webhook" / "manifests.yaml",
        kinds=KINDS,
        port=find_port(),
        config={**CONFIGURATION, "webhook": {"certDir": str(own / CERTIFICATES)}},
    )
    with running(namespace, [kueue], own):
        make_queue(namespace)
        try:
            yield namespace
        finally:
            for release in ("one", "two"):
                namespace.helm("uninstall", release, "--ignore-not-found", "--wait")
            namespace.kubectl("delete", "localqueue,workload", "--all", "--timeout=60s")
            # No namespace removes these.
            kinds = "clusterqueue,resourceflavor,workloadpriorityclass"
            namespace.kubectl("delete", kinds, namespace.name, "--ignore-not-found")


def make_queue(namespace: Namespace) -> None:
    """A queue for one run, in which a run of higher priority preempts one of lower priority."""
    name = namespace.name
    resources = [
        {"name": "cpu", "nominalQuota": QUOTA},
        {"name": "memory", "nominalQuota": "100Gi"},
    ]
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": name, "resources": resources}],
    }
    objects: dict[str, Any] = {
        "ResourceFlavor": {},
        "ClusterQueue": {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        },
        "LocalQueue": {"clusterQueue": name},
    }
    for kind, spec in objects.items():
        meta = {"name": "team" if kind == "LocalQueue" else name}
        namespace.apply({"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec})


def run_of(script: str, **values: Any) -> Values:
    """A run of two workers that asks for more than a half of the queue's room."""
    resources = {"requests": {"cpu": EACH, "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    master: Values = {"args": ["python3", "-uc", script], "resources": resources}
    return {
        **values,
        "queueName": "team",
        "cleanup": "Always",
        "worker": {"number": 2, "resources": resources},
        "master": {**master, **values.get("master", {})},
    }


def workloads(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """Kueue's entries, by their names up to the hash."""
    items = namespace.get("workloads.kueue.x-k8s.io")["items"]
    return {item["metadata"]["name"].rpartition("-")[0]: item for item in items}


def is_admitted(namespace: Namespace, release: str) -> bool:
    return "Admitted" in conditions(workloads(namespace).get(release, {}))


def pods_of(namespace: Namespace, release: str) -> list[dict[str, Any]]:
    selector = f"app.kubernetes.io/instance={release}"
    listed: list[dict[str, Any]] = namespace.get("pods", "--selector", selector)["items"]
    return listed


WAIT = "import os, time\nwhile not os.path.exists('/data/go'): time.sleep(0.1)"


@pytest.fixture(scope="class")
def both(queue: Namespace, node_folder: Path, privileged: Namespace) -> Namespace:
    """The run `one` trains, and the run `two`, which does not fit beside it, is in the queue."""
    run = run_of(WAIT, **on_node(node_folder, "data"))
    queue.install("one", run)
    queue.wait_for_event("Training", 180)
    queue.install("two", run)
    wait_until(lambda: "two" in workloads(queue), 60, "the second run is in the queue")
    return queue


@pytest.fixture(scope="class")
def completed(both: Namespace, node_folder: Path) -> Namespace:
    """Both runs have completed."""
    (node_folder / "go").touch()
    for release in ("one", "two"):
        both.assert_completes(release)
    return both


class TestRunsThatDoNotFitTogether:
    def test_each_run_is_one_entry(self, both: Namespace) -> None:
        entries = workloads(both)
        assert set(entries) == {"one", "two"}
        counts = {each["name"]: each["count"] for each in entries["two"]["spec"]["podSets"]}
        assert counts == {"master": 1, "worker": 2}

    def test_second_run_waits_as_a_whole(self, both: Namespace) -> None:
        wait_until(lambda: len(pods_of(both, "two")) == 3, 60, "all pods of the second run")
        assert all(pod["spec"].get("schedulingGates") for pod in pods_of(both, "two"))
        assert not is_admitted(both, "two")

    @pytest.mark.parametrize("release", ["one", "two"])
    def test_entry_is_over_when_its_run_has_completed(
        self, completed: Namespace, release: str
    ) -> None:
        def is_over() -> bool:
            return "Finished" in conditions(workloads(completed)[release])

        wait_until(is_over, 60, f"the entry of {release} is over", PROGRAM_PAUSE)


STEPS = """
import os, time
path = "/output/steps"
first = os.path.getsize(path) if os.path.exists(path) else 0
print("begins at step", first)
with open(path, "a") as file:
    for step in range(first, {last}):
        file.write("."); file.flush()
        time.sleep(0.1)
"""


def test_preempted_run_comes_back_and_resumes(
    queue: Namespace, node_folder: Path, privileged: Namespace
) -> None:
    """A preemption is no failure of the run: it may have none here."""
    queue.apply(
        {
            "apiVersion": API,
            "kind": "WorkloadPriorityClass",
            "value": 1000,
            "metadata": {"name": queue.name},
            "description": "of a test",
        }
    )
    output = on_node(node_folder, "output")
    script = STEPS.format(last=300)
    low = run_of(script, **output, master={"backoffLimit": 0})
    queue.install("one", low)
    steps = node_folder / "steps"
    wait_until(lambda: steps.exists() and steps.stat().st_size > 20, 180, "steps", PROGRAM_PAUSE)
    urgent = {"kueue.x-k8s.io/priority-class": queue.name}
    queue.install("two", run_of("print('urgent')", podLabels=urgent))
    queue.assert_completes("two")
    queue.assert_completes("one")
    assert "begins at step" in queue.log("one")
    assert "begins at step 0\n" not in queue.log("one")
    # One rank writes each step, on each of two workers.
    assert steps.stat().st_size >= 300


def test_deleted_worker_of_an_admitted_run_is_replaced(
    queue: Namespace, node_folder: Path, privileged: Namespace
) -> None:
    """Kueue lets the new pod of the same name start, without another entry in the queue."""
    output = on_node(node_folder, "output")
    queue.install("one", run_of(STEPS.format(last=200), **output))
    queue.wait_for_event("Training", 180)
    before = workloads(queue)["one"]["metadata"]["uid"]
    worker = next(pod for pod in pods_of(queue, "one") if "worker" in pod["metadata"]["name"])
    queue.kubectl("delete", "pod", worker["metadata"]["name"], "--grace-period=1")
    queue.wait_for_event("Training", 180, times=2)
    queue.assert_completes("one")
    assert workloads(queue)["one"]["metadata"]["uid"] == before
