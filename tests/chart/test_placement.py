"""Scheduling of pods: affinity, tolerations, gangs, queues and disruptions."""

from __future__ import annotations

import pytest

from tests.chart.cases import EVERY_POD, GPU_GROUPS, KUBERNETES_GANG, SPARES
from tests.chart.render import (
    Manifest,
    Values,
    helm_template,
    of_kind,
    one,
    pod_spec,
    render,
    run_pods,
)

WORKERS = {
    "app.kubernetes.io/name": "horovod",
    "app.kubernetes.io/instance": "hvd",
    "app.kubernetes.io/component": "worker",
}


def anti_affinity(workload: Manifest) -> Manifest:
    """Return the anti-affinity of a workload's pods."""
    rules: Manifest = pod_spec(workload).get("affinity", {}).get("podAntiAffinity", {})
    return rules


def test_workers_prefer_nodes_of_their_own() -> None:
    (term,) = anti_affinity(one(render(), "StatefulSet"))[
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": WORKERS},
    }


def test_workers_of_a_group_may_share_nodes_or_require_nodes_of_their_own() -> None:
    """Workers of all groups count, not only those of its own."""
    cpu, gpu = of_kind(render(GPU_GROUPS), "StatefulSet")
    assert anti_affinity(cpu) == {}
    (term,) = anti_affinity(gpu)["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == WORKERS


def test_pod_anti_affinity_of_the_user_replaces_spread() -> None:
    mine: Values = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    node: Values = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    groups = [{"name": "a", "affinity": mine}, {"name": "b", "affinity": node}]
    of_mine, of_node = of_kind(render({"workerGroups": groups}), "StatefulSet")
    assert anti_affinity(of_mine) == mine["podAntiAffinity"]
    assert pod_spec(of_node)["affinity"].keys() == {"nodeAffinity", "podAntiAffinity"}


def queued(command: str) -> list[Manifest]:
    """The manifests of a run in a queue."""
    return render({**GPU_GROUPS, "queueName": "no", "master": {"args": [command]}})


def test_all_pods_of_a_run_are_in_the_queue_and_its_workloads_are_not() -> None:
    """Kueue would take an object with the label for a job of its own."""
    manifests = queued("true")
    labels = [template["metadata"]["labels"] for template in run_pods(manifests)]
    assert {pod_labels["kueue.x-k8s.io/queue-name"] for pod_labels in labels} == {"no"}
    workloads = (*of_kind(manifests, "StatefulSet"), one(manifests, "Job"))
    assert "kueue" not in str([workload["metadata"]["labels"] for workload in workloads])


def groups_of_kueue(manifests: list[Manifest]) -> set[str]:
    """The groups of the pods of a run."""
    labels = [template["metadata"]["labels"] for template in run_pods(manifests)]
    return {pod_labels["kueue.x-k8s.io/pod-group-name"] for pod_labels in labels}


def test_all_pods_of_a_run_in_a_queue_are_one_group_of_kueue() -> None:
    manifests = queued("true")
    assert len(groups_of_kueue(manifests)) == 1
    pods = [template["metadata"] for template in run_pods(manifests)]
    (total,) = {pod["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for pod in pods}
    workers = sum(item["spec"]["replicas"] for item in of_kind(manifests, "StatefulSet"))
    assert int(total) == workers + 1


def test_kueue_learns_the_order_of_workers_in_a_topology() -> None:
    """Only pods of StatefulSets have the label; Kueue admits no run with a pod without it."""
    pods = [template["metadata"]["annotations"] for template in run_pods(queued("true"))]
    labels = [pod.get("kueue.x-k8s.io/pod-group-pod-index-label") for pod in pods]
    # The master's pod is the last one.
    assert labels == ["apps.kubernetes.io/pod-index"] * 2 + [None]


def test_another_run_is_another_entry_of_the_queue_with_pods_of_its_own() -> None:
    one_run = queued("true")
    other = queued("false")
    assert not groups_of_kueue(one_run) & groups_of_kueue(other)
    first, second = (
        {item["metadata"]["name"] for item in of_kind(manifests, "StatefulSet")}
        for manifests in (one_run, other)
    )
    assert not first & second


def test_gang_of_volcano_is_a_pod_group_of_all_pods() -> None:
    """It counts all workers and the master, and the spares: a smaller gang could leave out the
    master.
    """
    manifests = render({**SPARES, "gang": "Volcano"})
    group = one(manifests, "PodGroup")
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["spec"]["minMember"] == 5 + 1 + 1
    pods = run_pods(manifests)
    groups = {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods}
    assert groups == {group["metadata"]["name"]}
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"volcano"}


KUBERNETES_VALUES: Values = {
    **GPU_GROUPS,
    **EVERY_POD,
    "gang": "Kubernetes",
    "priorityClassName": "high",
}


@pytest.fixture(scope="module")
def kubernetes_gang() -> list[Manifest]:
    """The manifests of a gang of Kubernetes' own."""
    return render(KUBERNETES_VALUES, apis=KUBERNETES_GANG)


def test_kubernetes_gang_is_a_pod_group_of_all_pods(kubernetes_gang: list[Manifest]) -> None:
    group = one(kubernetes_gang, "PodGroup")
    assert group["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3 + 2 + 1}}
    assert group["spec"]["priorityClassName"] == "high"
    specs = [template["spec"] for template in run_pods(kubernetes_gang)]
    names = {spec["schedulingGroup"]["podGroupName"] for spec in specs}
    assert names == {group["metadata"]["name"]}
    assert not [spec for spec in specs if "schedulerName" in spec], "the default scheduler stays"


def test_kubernetes_gang_is_without_tensorboard(kubernetes_gang: list[Manifest]) -> None:
    assert "schedulingGroup" not in pod_spec(one(kubernetes_gang, "Deployment"))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"workerGroups": []}, id="size"),
        pytest.param({"priorityClassName": "low"}, id="priority"),
        pytest.param({"worker": {"minimum": 1}}, id="disruption"),
    ],
)
def test_another_specification_is_another_pod_group(values: Values) -> None:
    """Kubernetes refuses to change most fields of one."""
    group = one(render(KUBERNETES_VALUES, apis=KUBERNETES_GANG), "PodGroup")
    other = one(render({**KUBERNETES_VALUES, **values}, apis=KUBERNETES_GANG), "PodGroup")
    assert other["spec"] != group["spec"]
    assert other["metadata"]["name"] != group["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, "all"),
        ({"worker": {"number": 2, "minimum": 2}}, "all"),
        ({"worker": {"spares": 1}}, "single"),
        ({"worker": {"number": 2, "minimum": 1}}, "single"),
    ],
    ids=["every worker is needed", "a minimum of every worker", "a spare", "a minimum"],
)
def test_gang_is_preempted_as_a_whole_where_it_needs_every_worker(
    values: Values, mode: str
) -> None:
    spec = one(render({"gang": "Kubernetes", **values}, apis=KUBERNETES_GANG), "PodGroup")["spec"]
    assert spec["disruptionMode"] == {mode: {}}


def test_kubernetes_gang_is_refused_where_the_cluster_has_only_older_versions() -> None:
    older = "scheduling.k8s.io/v1alpha3/PodGroup"
    done = helm_template({"gang": "Kubernetes"}, apis=(older,))
    assert done.returncode != 0
    assert "no PodGroup of scheduling.k8s.io/v1beta1" in done.stderr


def test_queue_of_volcano_is_none_of_kueue() -> None:
    manifests = render({"gang": "Volcano", "queueName": "team", "priorityClassName": "high"})
    spec = one(manifests, "PodGroup")["spec"]
    assert spec == {"minMember": 3, "queue": "team", "priorityClassName": "high"}
    assert "kueue.x-k8s.io/queue-name" not in one(manifests, "Job")["metadata"]["labels"]


def test_init_containers_keep_the_guaranteed_class() -> None:
    exact = {"cpu": 4, "memory": "8Gi"}
    resources = {"requests": exact, "limits": {**exact, "nvidia.com/gpu": 1}}
    manifests = render({**EVERY_POD, "worker": {"resources": resources}})
    (staging,) = pod_spec(one(manifests, "StatefulSet"))["initContainers"]
    # Only the main container gets the GPU.
    assert staging["resources"] == {"requests": exact, "limits": exact}


@pytest.mark.parametrize(
    ("values", "pods"),
    [
        ({}, 3),
        (GPU_GROUPS, 6),
        # An eviction may hit a pod with ranks as well as a spare.
        (SPARES, 7),
        ({"worker": {"number": 4, "minimum": 2}}, 3),
    ],
)
def test_disruption_budget_covers_the_pods_that_the_run_needs(values: Values, pods: int) -> None:
    manifests = render({**values, "podDisruptionBudget": {"enabled": True}})
    budget = one(manifests, "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == pods
    assert budget["selector"] == one(manifests, "NetworkPolicy")["spec"]["podSelector"]
