"""TensorBoard, and who may connect to it."""

from __future__ import annotations

import pytest

from tests.chart.cases import OUTPUT
from tests.chart.render import Manifest, Values, of_kind, one, pod_spec, render

MASTER: Values = {"nodeSelector": {"storage": "here"}, "tolerations": [{"operator": "Exists"}]}
BOARD: Values = {**OUTPUT, "tensorboard": {"enabled": True}}
PEER: Values = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}


def test_tensorboard_reads_the_output_volume_and_is_scheduled_like_the_master() -> None:
    with_board = render({**OUTPUT, "master": MASTER, "tensorboard": {"enabled": True}})
    deployment = one(with_board, "Deployment")
    spec = pod_spec(deployment)
    (container,) = spec["containers"]
    assert container["command"][-2:] == ["--logdir", "/output/run"]
    mount = {"name": "output", "mountPath": "/output", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert {volume["name"] for volume in spec["volumes"]} == {"output", "tmp"}
    assert spec.items() >= MASTER.items()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = {
        service["metadata"]["name"]: service["spec"]["selector"].items() <= labels.items()
        for service in of_kind(with_board, "Service")
    }
    assert selectors == {"hvd": False, "hvd-tensorboard": True}


def test_tensorboard_mounts_the_volume_of_its_own_log_folder() -> None:
    manifests = render({**OUTPUT, "tensorboard": {"enabled": True, "logDir": "/out/logs"}})
    volumes = pod_spec(one(manifests, "Deployment"))["volumes"]
    assert {volume["name"] for volume in volumes} == {"x", "tmp"}


def board_policy(values: Values) -> Manifest:
    """Return the spec of TensorBoard's NetworkPolicy."""
    policies = {item["metadata"]["name"]: item for item in of_kind(render(values), "NetworkPolicy")}
    spec: Manifest = policies["hvd-tensorboard"]["spec"]
    return spec


@pytest.mark.promise("tensorboard is reached by nobody unless allowed")
def test_tensorboard_is_reached_by_nobody_unless_allowed() -> None:
    closed = board_policy(BOARD)
    assert closed["policyTypes"] == ["Ingress"]
    assert closed["ingress"] == []
    labels = one(render(BOARD), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert closed["podSelector"]["matchLabels"] == labels


def test_tensorboard_is_reached_by_whom_the_values_name() -> None:
    allowed = {**BOARD, "tensorboard": {"enabled": True, "allowFrom": [PEER]}}
    assert board_policy(allowed)["ingress"] == [{"from": [PEER], "ports": [{"port": "http"}]}]


def test_tensorboard_is_closed_where_the_workers_are_on_the_nodes_network() -> None:
    """TensorBoard itself is not on that network."""
    assert board_policy({**BOARD, "hostNetwork": True})["ingress"] == []


def test_tensorboard_has_no_policy_where_there_are_none() -> None:
    off = render({**BOARD, "networkPolicy": {"enabled": False}})
    assert of_kind(off, "NetworkPolicy") == []
