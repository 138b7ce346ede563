"""Scheduling of pods: affinity, tolerations, gangs and queues."""

from __future__ import annotations

import pytest

from tests.chart.render import (
    Manifest,
    Values,
    of_kind,
    one,
    pod_spec,
    refusal,
    render,
)

GPU_GROUPS: Values = {
    "workerGroups": [
        {"name": "cpu", "number": 3, "spread": "None"},
        {
            "name": "gpu",
            "number": 2,
            "slots": 4,
            "spread": "Required",
            "runtimeClassName": "nvidia",
            "resources": {"limits": {"nvidia.com/gpu": 4, "cpu": 8, "memory": "32Gi"}},
        },
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


def test_spread_defaults_to_preferred_anti_affinity() -> None:
    (term,) = anti_affinity(one(render(), "StatefulSet"))[
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": WORKERS},
    }


def test_spread_is_set_per_group() -> None:
    cpu, gpu = of_kind(render(GPU_GROUPS), "StatefulSet")
    assert anti_affinity(cpu) == {}
    (term,) = anti_affinity(gpu)["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == WORKERS, "all groups count, not only its own"


def test_pod_anti_affinity_of_the_user_replaces_spread() -> None:
    mine: Values = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    node: Values = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    workers = one(render({"worker": {"affinity": mine}}), "StatefulSet")
    assert anti_affinity(workers) == mine["podAntiAffinity"]
    affinity = pod_spec(one(render({"worker": {"affinity": node}}), "StatefulSet"))["affinity"]
    assert affinity.keys() == {"nodeAffinity", "podAntiAffinity"}
    message = refusal({"worker": {"spread": "Required", "affinity": mine}})
    assert "spread is Required" in message
    assert "affinity.podAntiAffinity" in message


def test_runtime_class_is_set_per_group() -> None:
    cpu, gpu = of_kind(render(GPU_GROUPS), "StatefulSet")
    assert "runtimeClassName" not in pod_spec(cpu)
    assert pod_spec(gpu)["runtimeClassName"] == "nvidia"


def test_priority_and_scheduler_apply_to_all_pods() -> None:
    values = {**GPU_GROUPS, "priorityClassName": "high", "schedulerName": "mine"}
    for template in run_pods(render(values)):
        assert template["spec"]["priorityClassName"] == "high"
        assert template["spec"]["schedulerName"] == "mine"


def test_queue_name_labels_workloads_and_not_pods() -> None:
    manifests = render({**GPU_GROUPS, "queueName": "team"})
    for workload in [*of_kind(manifests, "StatefulSet"), one(manifests, "Job")]:
        assert workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert not [
            key for key in workload["spec"]["template"]["metadata"]["labels"] if "kueue" in key
        ]


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
    manifests = render({**GPU_GROUPS, "gang": gang})
    group = one(manifests, "PodGroup")
    assert group["apiVersion"] == api
    assert group["spec"]["minMember"] == 3 + 2 + 1, "all workers and the master"
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
    values: Values = {
        **GPU_GROUPS,
        "gang": "Kubernetes",
        "priorityClassName": "high",
        "tensorboard": {"enabled": True, "logDir": "/logs"},
        "volumes": [{"name": "logs", "emptyDir": {}}],
        "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
    }
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
    more = render({**values, "worker": {"number": 9}}, apis=apis)
    same = render({**values, "worker": {"slots": 2}, "workerGroups": []}, apis=apis)
    assert one(more, "PodGroup")["metadata"]["name"] == group["metadata"]["name"], "groups count"
    assert one(same, "PodGroup")["metadata"]["name"] != group["metadata"]["name"]


def test_kubernetes_gang_is_refused_where_the_cluster_has_none() -> None:
    message = refusal({"gang": "Kubernetes"})
    for word in ("gang is Kubernetes", "GenericWorkload", "Volcano or SchedulerPlugins"):
        assert word in message
    assert "--api-versions scheduling.k8s.io/v1beta1/PodGroup" in message


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {"cpu": "100m", "memory": str(256 * 2**20)}),
        (
            {"requests": {"cpu": "1500m", "memory": "1.5Gi"}, "limits": {"cpu": 4, "x/gpu": 2}},
            {"cpu": "4600m", "memory": str(3 * 3 * 2**29 + 256 * 2**20), "x/gpu": "6"},
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
    """Three workers, and the master with the chart's default requests."""
    values: Values = {"gang": "Volcano", "worker": {"number": 3, "resources": resources}}
    assert one(render(values), "PodGroup")["spec"]["minResources"] == expected


def test_other_gangs_have_no_resources_of_their_own() -> None:
    assert one(render({"gang": "SchedulerPlugins"}), "PodGroup")["spec"] == {"minMember": 3}


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


def test_volcano_queue_is_set_on_the_pod_group() -> None:
    values = {"gang": "Volcano", "queueName": "team", "priorityClassName": "high"}
    manifests = render(values)
    spec = one(manifests, "PodGroup")["spec"]
    assert (spec["queue"], spec["priorityClassName"]) == ("team", "high")
    assert "kueue.x-k8s.io/queue-name" not in one(manifests, "Job")["metadata"]["labels"]


def test_init_containers_keep_the_guaranteed_class() -> None:
    exact = {"cpu": 4, "memory": "8Gi"}
    resources = {"requests": exact, "limits": {**exact, "nvidia.com/gpu": 1}}
    values: Values = {
        "worker": {"resources": resources},
        "master": {"resources": {"requests": exact, "limits": exact}},
        # If the values set no UID, an init container writes the passwd entry.
        "podSecurityContext": {"runAsUser": None},
    }
    for template in run_pods(render(values)):
        for container in template["spec"]["initContainers"]:
            # Only the main container gets the GPU.
            assert container["resources"] == {"requests": exact, "limits": exact}


BUDGET: Values = {"podDisruptionBudget": {"enabled": True}}


def elastic(slots: int, fewest: int | None) -> Values:
    """Return the values of an elastic run with four workers."""
    launch = {"mode": "elastic", "elastic": {"minRanks": fewest}}
    return {"worker": {"number": 4, "slots": slots}, "launch": launch}


@pytest.mark.parametrize(
    ("values", "pods"),
    [
        ({}, 3),
        (GPU_GROUPS, 6),
        (elastic(slots=2, fewest=4), 3),
        (elastic(slots=2, fewest=5), 4),
        (elastic(slots=2, fewest=None), 2),
    ],
)
def test_disruption_budget_covers_the_pods_that_the_run_needs(values: Values, pods: int) -> None:
    assert of_kind(render(values), "PodDisruptionBudget") == []
    manifests = render({**values, **BUDGET})
    budget = one(manifests, "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == pods
    assert budget["selector"] == one(manifests, "NetworkPolicy")["spec"]["podSelector"]
