"""Horovod's settings, TensorBoard and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.render import Manifest, Values, of_kind, one, pod_spec, refusal, render

OUTPUT: Values = {
    "worker": {"env": [{"name": "OUTPUT_PATH", "value": "/output/run"}]},
    "volumes": [{"name": "output", "hostPath": {"path": "/mnt"}}, {"name": "x", "emptyDir": {}}],
    "volumeMounts": [
        {"name": "x", "mountPath": "/out"},
        {"name": "output", "mountPath": "/output"},
    ],
}


def environment(manifests: list[Manifest], kind: str = "StatefulSet") -> dict[str, str]:
    """Return the main container's variables, each of which must be set only once."""
    entries = pod_spec(one(manifests, kind))["containers"][0]["env"]
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names)), names
    return {entry["name"]: entry.get("value", "") for entry in entries}


def test_horovod_variables_are_unset_by_default() -> None:
    ours = {
        "HOROVOD_TIMELINE",
        "HOROVOD_AUTOTUNE",
        "HOROVOD_FUSION_THRESHOLD",
        "HOROVOD_CYCLE_TIME",
    }
    assert not environment(render(OUTPUT)).keys() & ours


def test_horovod_settings_become_environment_of_workers() -> None:
    switches = {"timeline": True, "autotune": True, "fusionThresholdMiB": 32, "cycleTimeMs": 2.5}
    variables = environment(render({**OUTPUT, "horovod": switches}))
    assert variables["HOROVOD_TIMELINE"] == "$(OUTPUT_PATH)/horovod-timeline.json"
    assert variables["HOROVOD_AUTOTUNE_LOG"] == "$(OUTPUT_PATH)/horovod-autotune.csv"
    assert variables["HOROVOD_AUTOTUNE"] == "1"
    assert variables["HOROVOD_FUSION_THRESHOLD"] == str(32 * 1024 * 1024)
    assert variables["HOROVOD_CYCLE_TIME"] == "2.5"
    # Kubernetes expands only variables that come before.
    names = list(variables)
    assert names.index("OUTPUT_PATH") < names.index("HOROVOD_TIMELINE")


def test_fusion_threshold_of_zero_is_set() -> None:
    variables = environment(render({"horovod": {"fusionThresholdMiB": 0}}))
    assert variables["HOROVOD_FUSION_THRESHOLD"] == "0"


def test_worker_env_overrides_horovod_settings() -> None:
    env = [*OUTPUT["worker"]["env"], {"name": "HOROVOD_TIMELINE", "value": "DYNAMIC"}]
    values = {"worker": {"env": env}, "horovod": {"timeline": True}}
    assert environment(render(values))["HOROVOD_TIMELINE"] == "DYNAMIC"


def test_tensorboard_mounts_the_output_volume_only() -> None:
    manifests = render({**OUTPUT, "tensorboard": {"enabled": True}})
    deployment, (_, service) = one(manifests, "Deployment"), of_kind(manifests, "Service")
    spec = pod_spec(deployment)
    (container,) = spec["containers"]
    assert container["command"][-2:] == ["--logdir", "/output/run"]
    mount = {"name": "output", "mountPath": "/output", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert {volume["name"] for volume in spec["volumes"]} == {"output", "tmp"}
    assert spec["automountServiceAccountToken"] is False
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    workers = one(manifests, "StatefulSet")["spec"]["selector"]["matchLabels"]
    assert not workers.items() <= labels.items()


def test_tensorboard_is_scheduled_like_the_master() -> None:
    master = {"nodeSelector": {"storage": "here"}, "tolerations": [{"operator": "Exists"}]}
    values = {**OUTPUT, "master": master, "tensorboard": {"enabled": True, "logDir": "/out/logs"}}
    spec = pod_spec(one(render(values), "Deployment"))
    assert spec["nodeSelector"] == master["nodeSelector"]
    assert spec["tolerations"] == master["tolerations"]
    assert {volume["name"] for volume in spec["volumes"]} == {"x", "tmp"}


def test_metrics_are_served_by_the_master_on_a_named_port() -> None:
    manifests = render({"metrics": {"enabled": True, "file": "/output/m"}})
    container = pod_spec(one(manifests, "Job"))["containers"][0]
    (port,) = container["ports"]
    assert port["name"] == "metrics"
    variables = environment(manifests, "Job")
    assert variables["HVD_METRICS_PORT"] == str(port["containerPort"])
    assert variables["HVD_METRICS_FILE"] == "/output/m"
    without = pod_spec(one(render(), "Job"))["containers"][0]
    assert "ports" not in without


def test_metrics_are_served_by_the_workers_on_the_same_port() -> None:
    manifests = render({"metrics": {"enabled": True}})
    container = pod_spec(one(manifests, "StatefulSet"))["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    variables = environment(manifests)
    assert variables["HVD_METRICS_PORT"] == str(ports["metrics"])
    folder = variables["HVD_METRICS_DIR"]
    volumes = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(folder).parent) in volumes, "a folder that the ranks may write to"
    without = environment(render())
    assert "HVD_METRICS_PORT" not in without
    assert without["HVD_METRICS_DIR"] == folder, "the master reads the progress there"


@pytest.mark.parametrize(
    ("asked", "labels", "interval"),
    [
        (True, {}, None),
        ({"labels": {"release": "prometheus"}}, {"release": "prometheus"}, None),
        ({"interval": "15s"}, {}, "15s"),
    ],
)
def test_pod_monitor_scrapes_the_release_with_labels_and_interval(
    asked: bool | Values, labels: dict[str, str], interval: str | None
) -> None:
    manifests = render({"metrics": {"enabled": True, "podMonitor": asked}})
    monitor = one(manifests, "PodMonitor")
    assert labels.items() <= monitor["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["app.kubernetes.io/instance"] == "hvd"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint.get("interval")) == ("metrics", interval)
    assert monitor["spec"]["selector"] == one(manifests, "NetworkPolicy")["spec"]["podSelector"]
    targets = {rule["targetLabel"]: rule.get("replacement") for rule in endpoint["relabelings"]}
    assert targets == {"release": "hvd", "pod": "hvd-master", "instance": None}


@pytest.mark.parametrize("asked", [None, False])
def test_without_being_asked_for_there_is_no_pod_monitor(asked: bool | None) -> None:
    manifests = render({"metrics": {"enabled": True, "podMonitor": asked}})
    assert of_kind(manifests, "PodMonitor") == []


BOARD: Values = {**OUTPUT, "tensorboard": {"enabled": True}}
PEER: Values = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}


def board_policy(values: Values) -> Manifest:
    """Return the spec of TensorBoard's NetworkPolicy."""
    policies = {item["metadata"]["name"]: item for item in of_kind(render(values), "NetworkPolicy")}
    spec: Manifest = policies["hvd-tensorboard"]["spec"]
    return spec


def test_tensorboard_is_reached_by_nobody_unless_allowed() -> None:
    closed = board_policy(BOARD)
    assert closed["policyTypes"] == ["Ingress"]
    assert closed["ingress"] == []
    labels = one(render(BOARD), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert closed["podSelector"]["matchLabels"] == labels
    allowed = {**BOARD, "tensorboard": {"enabled": True, "allowFrom": [PEER]}}
    assert board_policy(allowed)["ingress"] == [{"from": [PEER], "ports": [{"port": "http"}]}]
    # The workers are on the nodes' network then, and TensorBoard is not.
    assert board_policy({**BOARD, "hostNetwork": True})["ingress"] == []
    off = render({**BOARD, "networkPolicy": {"enabled": False}})
    assert of_kind(off, "NetworkPolicy") == []


def test_network_policy_admits_the_metrics_port_only() -> None:
    values: Values = {"networkPolicy": {"enabled": True}, "metrics": {"enabled": True}}
    _, scrape = one(render(values), "NetworkPolicy")["spec"]["ingress"]
    assert scrape == {"ports": [{"port": "metrics"}]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"horovod": {"timeline": True}}, ["horovod.timeline", "worker.env", "OUTPUT_PATH"]),
        ({"tensorboard": {"enabled": True}}, ["tensorboard.logDir is empty", "OUTPUT_PATH"]),
        (
            {**OUTPUT, "tensorboard": {"enabled": True, "logDir": "/outside"}},
            ['tensorboard.logDir is "/outside"', "volumeMounts"],
        ),
        ({"metrics": {"podMonitor": True}}, ["metrics.podMonitor", "metrics.enabled"]),
        (
            {"tensorboard": {"allowFrom": [PEER]}},
            ["tensorboard.allowFrom", "tensorboard.enabled"],
        ),
        (
            {
                **OUTPUT,
                "tensorboard": {"enabled": True, "allowFrom": [PEER]},
                "networkPolicy": {"enabled": False},
            },
            ["tensorboard.allowFrom", "networkPolicy.enabled"],
        ),
    ],
)
def test_observability_without_a_source_is_refused(values: Values, words: list[str]) -> None:
    message = refusal(values)
    for word in words:
        assert word in message
