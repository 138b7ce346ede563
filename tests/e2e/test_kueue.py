"""Runs of the chart in a queue of Kueue, whose controller runs here. Rare: Kueue is built first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.toolchain.tools import KUEUE, module_folder
from tests.support.controllers import ALONE, CERTIFICATES, Controller, running
from tests.support.namespace import (
    Namespace,
    Values,
    node_without_kubelet,
    remove_from_nodes_without_kubelet,
    true_conditions,
)
from tests.support.ports import find_port
from tests.support.volumes import on_node

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


@contextmanager
def kueue(namespace: Namespace, folder_of_test: Path, **configuration: Any) -> Iterator[None]:
    """Kueue, with this configuration, for the objects of one namespace, in a folder of the test.

    At the end of the block, the releases, and what the block has made for Kueue, are removed.
    """
    folder = module_folder("kueue", KUEUE) / "config" / "components"
    upper = folder_of_test / "upper"
    work = folder_of_test / "work"
    (upper / METRICS).parent.mkdir(parents=True)
    (upper / METRICS).symlink_to(folder_of_test / CERTIFICATES)
    work.mkdir()
    config = {
        **CONFIGURATION,
        **configuration,
        "webhook": {"certDir": str(folder_of_test / CERTIFICATES)},
    }
    controller = Controller(
        "kueue",
        crds=sorted((folder / "crd" / "bases").glob("*.yaml")),
        command=("unshare", "--mount", "sh", "-ec", WITH_OWN_ETC, "sh", str(upper), str(work)),
        arguments=("--feature-gates=VisibilityOnDemand=false",),
        webhooks=folder / "webhook" / "manifests.yaml",
        kinds=KINDS,
        port=find_port(),
        config=config,
    )
    with running(namespace, [controller], folder_of_test):
        try:
            yield
        finally:
            for release in ("one", "two"):
                namespace.helm("uninstall", release, "--ignore-not-found", "--wait")
            namespace.kubectl("delete", "localqueue,workload", "--all", "--timeout=60s")
            # No namespace removes these.
            kinds = "clusterqueue,cohort,resourceflavor,topology,workloadpriorityclass"
            names = (namespace.name, others(namespace))
            namespace.kubectl("delete", kinds, *names, "--ignore-not-found")


@pytest.fixture(scope="class")
def queue(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A namespace whose LocalQueue `team` has room for one run; Kueue admits runs there."""
    with kueue(namespace, tmp_path_factory.mktemp("kueue")):
        make(namespace, "ResourceFlavor", namespace.name)
        # A run of higher priority preempts one of lower priority.
        preemption = {"withinClusterQueue": "LowerPriority"}
        make_queue(namespace, "team", namespace.name, quota=QUOTA, preemption=preemption)
        yield namespace


def others(namespace: Namespace) -> str:
    """The name of the second ClusterQueue."""
    return f"{namespace.name}-others"


def make(namespace: Namespace, kind: str, name: str, **spec: Any) -> None:
    """Create an object of Kueue."""
    meta = {"name": name}
    namespace.apply({"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec})


def resource_groups(namespace: Namespace, cpu: str, memory: str = "100Gi") -> list[Values]:
    """A quota of the namespace's ResourceFlavor."""
    quotas = {"cpu": cpu, "memory": memory}
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    flavors = [{"name": namespace.name, "resources": resources}]
    return [{"coveredResources": [*quotas], "flavors": flavors}]


def make_queue(
    namespace: Namespace, local: str, name: str, quota: str, memory: str = "100Gi", **spec: Any
) -> None:
    """A LocalQueue of a ClusterQueue of its own, with a quota."""
    groups = resource_groups(namespace, quota, memory)
    make(namespace, "ClusterQueue", name, namespaceSelector={}, resourceGroups=groups, **spec)
    make(namespace, "LocalQueue", local, clusterQueue=name)


def run_of(script: str, workers: int = 2, **values: Any) -> Values:
    """A run that, with two workers, asks for more than a half of the queue's room."""
    resources = {"requests": {"cpu": EACH, "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    master: Values = {"args": ["python3", "-uc", script], "resources": resources}
    return {
        "queueName": "team",
        **values,
        "cleanup": "Always",
        "worker": {"number": workers, "resources": resources, **values.get("worker", {})},
        "master": {**master, **values.get("master", {})},
    }


def workloads(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """Kueue's entries, by their names up to the hash."""
    items = namespace.get("workloads.kueue.x-k8s.io")["items"]
    return {item["metadata"]["name"].rpartition("-")[0]: item for item in items}


def is_admitted(namespace: Namespace, release: str) -> bool:
    return "Admitted" in true_conditions(workloads(namespace).get(release, {}))


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
        counts = {pods["name"]: pods["count"] for pods in entries["two"]["spec"]["podSets"]}
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
            return "Finished" in true_conditions(workloads(completed)[release])

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


def preempt(queue: Namespace, node_folder: Path, workers: int, **by: Any) -> Path:
    """Let the run `two` take the place of the run `one`; return the file of the steps of `one`.

    A preemption is no failure of the run: it may have none here.
    """
    output = on_node(node_folder, "output")
    script = STEPS.format(last=300)
    queue.install("one", run_of(script, workers, **output, master={"backoffLimit": 0}))
    steps = node_folder / "steps"
    wait_until(lambda: steps.exists() and steps.stat().st_size > 20, 180, "steps", PROGRAM_PAUSE)
    queue.install("two", run_of("print('urgent')", **by))
    queue.assert_completes("two")
    return steps


def test_preempted_run_comes_back_and_resumes(
    queue: Namespace, node_folder: Path, privileged: Namespace
) -> None:
    queue.apply(
        {
            "apiVersion": API,
            "kind": "WorkloadPriorityClass",
            "value": 1000,
            "metadata": {"name": queue.name},
            "description": "of a test",
        }
    )
    urgent = {"kueue.x-k8s.io/priority-class": queue.name}
    steps = preempt(queue, node_folder, workers=2, podLabels=urgent)
    queue.assert_completes("one")
    assert "begins at step" in queue.log("one")
    assert "begins at step 0\n" not in queue.log("one")
    # One rank writes each step, on each of two workers.
    assert steps.stat().st_size >= 300


# The default of Kueue's Helm chart.
FAIR = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}


@pytest.fixture(scope="class")
def cohort(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """Two LocalQueues, `team` and `others`, that borrow all from a cohort, in equal shares."""
    with kueue(namespace, tmp_path_factory.mktemp("kueue"), fairSharing=FAIR):
        make(namespace, "ResourceFlavor", namespace.name)
        groups = resource_groups(namespace, QUOTA)
        make(namespace, "Cohort", namespace.name, resourceGroups=groups)
        spec = {"cohortName": namespace.name, "preemption": {"reclaimWithinCohort": "Any"}}
        for local, name in (("team", namespace.name), ("others", others(namespace))):
            make_queue(namespace, local, name, quota="0", memory="0", **spec)
        yield namespace


def test_run_that_exceeds_its_fair_share_is_preempted(
    cohort: Namespace, node_folder: Path, privileged: Namespace
) -> None:
    """Four of five pods are of one queue, until the other one wants two."""
    preempt(cohort, node_folder, workers=3, queueName="others", worker={"number": 1})
    (event,) = cohort.get("events", "--field-selector=reason=Preempted")["items"]
    assert event["involvedObject"]["name"].startswith("one-")
    assert "due to Fair Sharing within the cohort" in event["message"]
    # All workers have ended within a second, and Kueue must not take the run for finished.
    cohort.assert_completes("one")


RACK = "hvd-test/rack"
# Nodes in the order of their racks, which is not that of their names.
NODES = {"a": "left", "c": "left", "e": "left", "b": "right", "d": "right", "f": "right"}
TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"


@pytest.fixture(scope="class")
def racks(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A LocalQueue `team` with the nodes of two racks, on which pods are placed and never run."""
    label = {"hvd-test": namespace.name}
    room = {"cpu": "3", "memory": "64Gi", "pods": "110"}
    tolerations = [{"key": "hvd-test", "operator": "Exists"}]
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    with kueue(namespace, tmp_path_factory.mktemp("kueue")), ExitStack() as nodes:
        make(namespace, "Topology", namespace.name, levels=levels)
        flavor = {"nodeLabels": label, "topologyName": namespace.name, "tolerations": tolerations}
        make(namespace, "ResourceFlavor", namespace.name, **flavor)
        make_queue(namespace, "team", namespace.name, quota="100")
        for letter, rack in NODES.items():
            name = node_name(namespace, letter)
            labels = {**label, RACK: rack, "kubernetes.io/hostname": name}
            nodes.enter_context(node_without_kubelet(namespace, name, labels, room, room))
        yield namespace
        remove_from_nodes_without_kubelet(namespace, "one", "two")


def node_name(namespace: Namespace, letter: str) -> str:
    return f"{letter}-{namespace.name[-8:]}"


def in_topology(annotation: str, workers: int) -> Values:
    """A run whose workers need most of a node each, and are to be near each other."""
    annotations = {TOPOLOGY.format(annotation): RACK}
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
    worker = {"number": workers, "podAnnotations": annotations, "resources": resources}
    return run_of("print()", worker=worker)


def places(namespace: Namespace, release: str, workers: int) -> list[str]:
    """The nodes of the workers, by the letters of their names, as soon as all have one."""
    racks_of_pods: Mapping[int, str] = {}

    def have_nodes() -> bool:
        nonlocal racks_of_pods
        key = "apps.kubernetes.io/pod-index"
        pods = [pod for pod in pods_of(namespace, release) if key in pod["metadata"]["labels"]]
        racks_of_pods = {
            int(pod["metadata"]["labels"][key]): pod["spec"]["nodeName"][0]
            for pod in pods
            if "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]
        }
        return len(racks_of_pods) == workers

    wait_until(have_nodes, 60, f"each worker of {release} has a node", PROGRAM_PAUSE)
    return [racks_of_pods[index] for index in range(workers)]


class TestTopology:
    """Ranks are in the order of the workers."""

    def test_workers_are_in_the_order_of_the_racks(self, racks: Namespace) -> None:
        racks.install("one", in_topology("preferred", workers=6))
        assert places(racks, "one", 6) == [*NODES]

    def test_worker_that_is_replaced_has_the_same_place(self, racks: Namespace) -> None:
        worker = sorted(pod["metadata"]["name"] for pod in pods_of(racks, "one"))[3]
        racks.kubectl("delete", "pod", worker, "--force", "--grace-period=0")
        assert places(racks, "one", 6) == [*NODES]

    def test_required_rack_has_all_workers(self, racks: Namespace) -> None:
        racks.helm("uninstall", "one")
        racks.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        racks.install("two", in_topology("required", workers=3))
        assert len({NODES[letter] for letter in places(racks, "two", 3)}) == 1


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
