"""Scheduling of pods: affinity, tolerations, gangs, queues and disruptions."""

from __future__ import annotations

import pytest

from tests.chart.render import Manifest, Values, of_kind, one, pod_spec, render
from tests.chart.test_groups import SPARES
from tests.chart.test_security import EVERY_POD

GPU_GROUPS: Values = {
    "workerGroups": [
        {"name": "cpu", "number": 3, "spread": "None"},
        {"name": "gpu", "number": 2, "spread": "Required"},
    ]
}
WORKERS = {
    "app.kubernetes.io/name": "horovod",
    "app.kubernetes.io/instance": "hvd",
    "app.kubernetes.io/component": "worker",
}


def anti_affinity(workload: Manifest) -> Manifest:
    """Return the anti-affinity of a workload's pods."""
    rules: Manifest = pod_spec(workload).get("affinity", {}).get("podAntiAffinity", {})
    return rules


def run_pods(manifests: list[Manifest]) -> list[Manifest]:
    """Return the pod templates of all workers and the master."""
    workloads = [*of_kind(manifests, "StatefulSet"), one(manifests, "Job")]
    return [workload["spec"]["template"] for workload in workloads]


def test_workers_spread_over_nodes_as_their_group_asks() -> None:
    (term,) = anti_affinity(one(render(), "StatefulSet"))[
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": WORKERS},
    }
    cpu, gpu = of_kind(render(GPU_GROUPS), "StatefulSet")
    assert anti_affinity(cpu) == {}
    (term,) = anti_affinity(gpu)["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == WORKERS, "all groups count, not only its own"


def test_pod_anti_affinity_of_the_user_replaces_spread() -> None:
    mine: Values = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    node: Values = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    groups = [{"name": "a", "affinity": mine}, {"name": "b", "affinity": node}]
    of_mine, of_node = of_kind(render({"workerGroups": groups}), "StatefulSet")
    assert anti_affinity(of_mine) == mine["podAntiAffinity"]
    assert pod_spec(of_node)["affinity"].keys() == {"nodeAffinity", "podAntiAffinity"}


def test_master_has_a_runtime_class_and_spreads_among_masters() -> None:
    zones = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    master = {"runtimeClassName": "kata", "topologySpreadConstraints": [zones]}
    manifests = render({"master": master})
    spec = pod_spec(one(manifests, "Job"))
    assert spec["runtimeClassName"] == "kata"
    (constraint,) = spec["topologySpreadConstraints"]
    masters = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/component": "master"}
    assert constraint == {**zones, "labelSelector": {"matchLabels": masters}}
    workers = pod_spec(one(manifests, "StatefulSet"))
    assert not workers.keys() & {"runtimeClassName", "topologySpreadConstraints"}
    own = {**zones, "labelSelector": {"matchLabels": {"mine": "yes"}}}
    both = {"topologySpreadConstraints": [own]}
    replaced = render({"master": both, "worker": both})
    for kind in ("Job", "StatefulSet"):
        assert pod_spec(one(replaced, kind))["topologySpreadConstraints"] == [own]


def test_all_pods_of_a_run_in_a_queue_are_one_group_of_kueue() -> None:
    first, other = (
        render({**GPU_GROUPS, "queueName": "no", "master": {"args": [args]}})
        for args in ("true", "false")
    )
    groups = []
    for manifests in (first, other):
        workloads = [*of_kind(manifests, "StatefulSet"), one(manifests, "Job")]
        # Kueue would take an object with the label for a job of its own.
        assert all("kueue" not in str(each["metadata"].get("labels")) for each in workloads)
        pods = [each["spec"]["template"]["metadata"] for each in workloads]
        assert {pod["labels"]["kueue.x-k8s.io/queue-name"] for pod in pods} == {"no"}
        (total,) = {pod["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for pod in pods}
        workers = sum(each["spec"]["replicas"] for each in of_kind(manifests, "StatefulSet"))
        assert int(total) == workers + 1
        (group,) = {pod["labels"]["kueue.x-k8s.io/pod-group-name"] for pod in pods}
        groups.append(group)
    # Another run is another entry of the queue, with pods of its own.
    names = [
        {each["metadata"]["name"] for each in of_kind(made, "StatefulSet")}
        for made in (first, other)
    ]
    assert groups[0] != groups[1]
    assert not names[0] & names[1]


@pytest.mark.parametrize(
    ("gang", "api", "scheduler", "field", "key"),
    [
        (
            "Volcano",
            "scheduling.volcano.sh/v1beta1",
            "volcano",
            "annotations",
            "scheduling.k8s.io/group-name",
        ),
        (
            "SchedulerPlugins",
            "scheduling.x-k8s.io/v1alpha1",
            "scheduler-plugins-scheduler",
            "labels",
            "scheduling.x-k8s.io/pod-group",
        ),
    ],
)
def test_gang_creates_a_pod_group_of_all_pods(
    gang: str, api: str, scheduler: str, field: str, key: str
) -> None:
    """It has the spares: a smaller gang could leave out the master."""
    manifests = render({**SPARES, "gang": gang})
    group = one(manifests, "PodGroup")
    assert group["apiVersion"] == api
    assert group["spec"]["minMember"] == 5 + 1 + 1, "all workers and the master"
    for template in run_pods(manifests):
        assert template["metadata"][field][key] == group["metadata"]["name"]
        assert template["spec"]["schedulerName"] == scheduler


KUBERNETES_GANG = tuple(
    f"scheduling.k8s.io/{version}/PodGroup" for version in ("v1alpha2", "v1alpha3", "v1beta1")
)


@pytest.mark.parametrize(
    ("apis", "newest"), [(KUBERNETES_GANG, "v1beta1"), (KUBERNETES_GANG[:1], "v1alpha2")]
)
def test_kubernetes_gang_is_a_pod_group_of_all_pods(apis: tuple[str, ...], newest: str) -> None:
    values: Values = {**GPU_GROUPS, **EVERY_POD, "gang": "Kubernetes", "priorityClassName": "high"}
    manifests = render(values, apis=apis)
    group = one(manifests, "PodGroup")
    assert group["apiVersion"] == f"scheduling.k8s.io/{newest}"
    assert group["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 3 + 2 + 1}},
        "priorityClassName": "high",
    }
    for template in run_pods(manifests):
        assert template["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
        assert "schedulerName" not in template["spec"]
    assert "schedulingGroup" not in pod_spec(one(manifests, "Deployment"))
    # Its size may be immutable.
    fewer = render({**values, "workerGroups": []}, apis=apis)
    assert one(fewer, "PodGroup")["metadata"]["name"] != group["metadata"]["name"]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {"cpu": "100m", "memory": str(256 * 2**20)}),
        (
            {
                "requests": {"cpu": "1500m", "memory": "1.5Gi", "x/disk": 0},
                "limits": {"cpu": 4, "x/disk": 1, "x/gpu": 2},
            },
            {
                "cpu": "4600m",
                "memory": str(3 * 3 * 2**29 + 256 * 2**20),
                "x/disk": "0",
                "x/gpu": "6",
            },
        ),
        (
            {"limits": {"cpu": 0.5, "memory": 1e9, "x/gpu": "1"}},
            {"cpu": "1600m", "memory": str(3 * 10**9 + 256 * 2**20), "x/gpu": "3"},
        ),
    ],
)
def test_volcano_waits_for_the_resources_of_all_pods(
    resources: Values, expected: dict[str, str]
) -> None:
    """Three workers, of which one is spare, and the master with the chart's default requests."""
    worker = {"number": 2, "spares": 1, "resources": resources}
    values: Values = {"gang": "Volcano", "worker": worker, "queueName": "team"}
    manifests = render({**values, "priorityClassName": "high"})
    spec = one(manifests, "PodGroup")["spec"]
    assert spec["minResources"] == expected
    assert (spec["queue"], spec["priorityClassName"]) == ("team", "high")
    assert "kueue.x-k8s.io/queue-name" not in one(manifests, "Job")["metadata"]["labels"]


def test_init_containers_keep_the_guaranteed_class() -> None:
    exact = {"cpu": 4, "memory": "8Gi"}
    resources = {"requests": exact, "limits": {**exact, "nvidia.com/gpu": 1}}
    master = {"resources": {"requests": exact, "limits": exact}}
    values: Values = {**EVERY_POD, "worker": {"resources": resources}, "master": master}
    for template in run_pods(render(values)):
        assert len(template["spec"]["initContainers"]) == 3
        for container in template["spec"]["initContainers"]:
            # Only the main container gets the GPU.
            assert container["resources"] == {"requests": exact, "limits": exact}


def elastic(slots: int, fewest: int | None) -> Values:
    """Return the values of an elastic run with four workers."""
    launch = {"mode": "elastic", "elastic": {"minRanks": fewest}}
    return {"worker": {"number": 4, "slots": slots}, "launch": launch}


@pytest.mark.parametrize(
    ("values", "pods"),
    [
        ({}, 3),
        (GPU_GROUPS, 6),
        # An eviction may hit a pod with ranks as well as a spare.
        (SPARES, 7),
        (elastic(slots=2, fewest=4), 3),
        (elastic(slots=2, fewest=5), 4),
        (elastic(slots=2, fewest=None), 2),
    ],
)
def test_disruption_budget_covers_the_pods_that_the_run_needs(values: Values, pods: int) -> None:
    manifests = render({**values, "podDisruptionBudget": {"enabled": True}})
    budget = one(manifests, "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == pods
    assert budget["selector"] == one(manifests, "NetworkPolicy")["spec"]["podSelector"]
