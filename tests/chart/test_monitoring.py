"""Horovod's settings, TensorBoard and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.render import (
    Manifest,
    Values,
    main_container,
    of_kind,
    one,
    pod_spec,
    render,
    variables,
)

OUTPUT: Values = {
    "worker": {"env": [{"name": "OUTPUT_PATH", "value": "/output/run"}]},
    "volumes": [{"name": "output", "hostPath": {"path": "/mnt"}}, {"name": "x", "emptyDir": {}}],
    "volumeMounts": [
        {"name": "x", "mountPath": "/out"},
        {"name": "output", "mountPath": "/output"},
    ],
}


def test_horovod_settings_become_environment_of_workers() -> None:
    switches = {"timeline": True, "autotune": True, "fusionThresholdMiB": 32, "cycleTimeMs": 2.5}
    environment = variables(render({**OUTPUT, "horovod": switches}))
    expected = {
        "HOROVOD_TIMELINE": "$(OUTPUT_PATH)/horovod-timeline.json",
        "HOROVOD_AUTOTUNE_LOG": "$(OUTPUT_PATH)/horovod-autotune.csv",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_FUSION_THRESHOLD": str(32 * 1024 * 1024),
        "HOROVOD_CYCLE_TIME": "2.5",
    }
    assert expected.items() <= environment.items()
    # Kubernetes expands only variables that come before.
    names = list(environment)
    assert names.index("OUTPUT_PATH") < names.index("HOROVOD_TIMELINE")
    assert not variables(render(OUTPUT)).keys() & expected.keys(), "unset by default"
    unfused = variables(render({"horovod": {"fusionThresholdMiB": 0}}))
    assert unfused["HOROVOD_FUSION_THRESHOLD"] == "0"


@pytest.mark.parametrize(
    ("values", "by_ranks"),
    [
        ({}, True),
        ({"horovod": {"fusionThresholdMiB": 128}}, False),
        ({"horovod": {"autotune": True}}, False),
        ({"launch": {"mode": "horovodrun"}}, False),
        ({"worker": {"slots": 1, "resources": {"limits": {"amd.com/gpu": 1}}}}, False),
        ({"worker": {"resources": {"limits": {"habana.ai/gaudi": 1}}}}, False),
        ({"worker": {"runtimeClassName": "nvidia"}}, False),
        ({"worker": {"env": [{"name": "HOROVOD_FUSION_THRESHOLD", "value": "0"}]}}, False),
        ({"worker": {"envFrom": [{"secretRef": {"name": "ours"}}]}}, False),
        ({"workerGroups": [{"name": "a"}, {"name": "b"}]}, True),
        ({"workerGroups": [{"name": "a"}, {"name": "b", "image": {"tag": "2"}}]}, False),
    ],
)
def test_ranks_choose_the_fusion_threshold_over_mpi_on_cpus_alone(
    values: Values, by_ranks: bool
) -> None:
    first, *_ = of_kind(render(values), "StatefulSet")
    assert ("HVD_FUSION_BY_RANKS" in variables([first])) is by_ranks


def test_tensorboard_mounts_the_output_volume_only_and_is_scheduled_like_the_master() -> None:
    master = {"nodeSelector": {"storage": "here"}, "tolerations": [{"operator": "Exists"}]}
    manifests = render({**OUTPUT, "master": master, "tensorboard": {"enabled": True}})
    deployment = one(manifests, "Deployment")
    spec = pod_spec(deployment)
    (container,) = spec["containers"]
    assert container["command"][-2:] == ["--logdir", "/output/run"]
    mount = {"name": "output", "mountPath": "/output", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert {volume["name"] for volume in spec["volumes"]} == {"output", "tmp"}
    assert spec.items() >= master.items()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = {
        service["metadata"]["name"]: service["spec"]["selector"].items() <= labels.items()
        for service in of_kind(manifests, "Service")
    }
    assert selectors == {"hvd": False, "hvd-tensorboard": True}
    other = render({**OUTPUT, "tensorboard": {"enabled": True, "logDir": "/out/logs"}})
    volumes = pod_spec(one(other, "Deployment"))["volumes"]
    assert {volume["name"] for volume in volumes} == {"x", "tmp"}


def test_metrics_are_served_on_the_same_named_port_by_all_pods() -> None:
    manifests = render({"metrics": {"enabled": True, "file": "/output/m"}})
    for kind in ("Job", "StatefulSet"):
        container = main_container(manifests, kind)
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        assert variables(manifests, kind)["HVD_METRICS_PORT"] == ports["metrics"]
    assert variables(manifests, "Job")["HVD_METRICS_FILE"] == "/output/m"
    folder = variables(manifests)["HVD_METRICS_DIR"]
    volumes = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(folder).parent) in volumes, "a folder that the ranks may write to"
    assert "ports" not in main_container(render(), "Job")
    without = variables(render())
    assert "HVD_METRICS_PORT" not in without
    assert without["HVD_METRICS_DIR"] == folder, "the master reads the progress there"


def test_pod_monitor_scrapes_the_release_with_labels_and_interval() -> None:
    asked = {"labels": {"release": "prometheus"}, "interval": "15s"}
    manifests = render({"metrics": {"enabled": True, "podMonitor": asked}})
    monitor = one(manifests, "PodMonitor")
    labels = {"release": "prometheus", "app.kubernetes.io/instance": "hvd"}
    assert labels.items() <= monitor["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["interval"]) == ("metrics", "15s")
    assert monitor["spec"]["selector"] == one(manifests, "NetworkPolicy")["spec"]["podSelector"]
    targets = {rule["targetLabel"]: rule.get("replacement") for rule in endpoint["relabelings"]}
    assert targets == {"release": "hvd", "pod": "hvd-master", "instance": None}
    for other, number in ((True, 1), (None, 0), (False, 0)):
        rendered = render({"metrics": {"enabled": True, "podMonitor": other}})
        assert len(of_kind(rendered, "PodMonitor")) == number


BOARD: Values = {**OUTPUT, "tensorboard": {"enabled": True}}
PEER: Values = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}


def board_policy(values: Values) -> Manifest:
    """Return the spec of TensorBoard's NetworkPolicy."""
    policies = {item["metadata"]["name"]: item for item in of_kind(render(values), "NetworkPolicy")}
    spec: Manifest = policies["hvd-tensorboard"]["spec"]
    return spec


def test_tensorboard_is_reached_by_nobody_unless_allowed() -> None:
    closed = board_policy(BOARD)
    assert (closed["policyTypes"], closed["ingress"]) == (["Ingress"], [])
    labels = one(render(BOARD), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert closed["podSelector"]["matchLabels"] == labels
    allowed = {**BOARD, "tensorboard": {"enabled": True, "allowFrom": [PEER]}}
    assert board_policy(allowed)["ingress"] == [{"from": [PEER], "ports": [{"port": "http"}]}]
    # The workers are on the nodes' network then, and TensorBoard is not.
    assert board_policy({**BOARD, "hostNetwork": True})["ingress"] == []
    off = render({**BOARD, "networkPolicy": {"enabled": False}})
    assert of_kind(off, "NetworkPolicy") == []
