"""The chart refuses ports of nodes that the pods of another release have."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.chart.releases import on_nodes
from tests.chart.render import (
    Manifest,
    Values,
    helm_template,
    one,
    pod_spec,
    render,
    write_small_chart,
)

# What the check of ports sees of a cluster, which `helm template` does not reach.
CHECK_OF_PORTS = """\
{{- $_ := set . "facts" .Values.facts -}}
{{- include "horovod.checkPortsInUse" . -}}
"""
WORKER: Values = {"nodeSelector": {}}
POOL = {"pool": "a"}


@pytest.fixture(scope="module")
def check_of_ports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart of nothing but the check."""
    folder = tmp_path_factory.mktemp("ports")
    files = ("checks/_checks.tpl", "checks/_network.tpl", "common/_labels.tpl")
    return write_small_chart(folder, CHECK_OF_PORTS, *files)


def check(
    chart: Path, stateful_set: Manifest, *, metrics: bool = False, **worker: object
) -> CompletedProcess[str]:
    """Check the ports of a release in a cluster that has another StatefulSet."""
    facts = {
        "name": "horovod",
        "values": {
            "hostNetwork": True,
            "agent": {"port": 2222},
            "metrics": {"enabled": metrics, "port": 9400},
        },
        "podValues": {"master": {}, "worker": {**WORKER, **worker}},
        "statefulSets": {stateful_set["metadata"]["name"]: stateful_set},
    }
    return helm_template({"facts": facts}, chart=chart)


@pytest.mark.parametrize(
    ("stateful_set", "is_refused"),
    [
        (on_nodes(2222, release="hvd"), False),
        (on_nodes(2222, release="other"), True),
        (on_nodes(2223, release="other"), False),
        (on_nodes(2222, release="hvd", name="second"), True),
        (on_nodes(2223, 2222, release="other"), True),
    ],
    ids=[
        "its own",
        "another release",
        "another port",
        "another dependency of the release",
        "the second port of another release",
    ],
)
def test_port_that_other_workers_have_of_the_nodes_is_refused(
    check_of_ports: Path, stateful_set: Manifest, *, is_refused: bool
) -> None:
    name = stateful_set["metadata"]["name"]
    done = check(check_of_ports, stateful_set)
    assert (done.returncode != 0) is is_refused
    assert (f'"{name}"' in done.stderr) is is_refused


@pytest.mark.parametrize(("port", "key"), [(2222, "agent.port"), (9400, "metrics.port")])
def test_each_port_of_the_workers_is_compared(check_of_ports: Path, port: int, key: str) -> None:
    done = check(check_of_ports, on_nodes(port, release="other"), metrics=True)
    assert f"hostNetwork is true and {key} is {port}:" in done.stderr
    assert check(check_of_ports, on_nodes(port + 10, release="other"), metrics=True).returncode == 0


def test_port_of_another_protocol_is_another_port(check_of_ports: Path) -> None:
    stateful_set = on_nodes(2222, release="other")
    for container in pod_spec(stateful_set)["containers"]:
        for port in container["ports"]:
            port["protocol"] = "UDP"
    assert check(check_of_ports, stateful_set).returncode == 0


@pytest.mark.parametrize(
    ("policy", "is_refused"), [({"restartPolicy": "Always"}, True), ({}, False)]
)
def test_native_sidecars_have_ports_of_their_nodes_as_well(
    check_of_ports: Path, policy: dict[str, str], *, is_refused: bool
) -> None:
    stateful_set = on_nodes(2223, release="other")
    container = {"name": "proxy", "ports": [{"containerPort": 2222}], **policy}
    pod_spec(stateful_set)["initContainers"] = [container]
    assert (check(check_of_ports, stateful_set).returncode != 0) is is_refused


def test_workers_have_no_other_port_than_those_that_are_compared() -> None:
    manifests = render({"hostNetwork": True, "metrics": {"enabled": True, "port": 9401}})
    (worker,) = pod_spec(one(manifests, "StatefulSet"))["containers"]
    assert [port["containerPort"] for port in worker["ports"]] == [2222, 9401]


def test_metrics_that_are_disabled_need_no_port(check_of_ports: Path) -> None:
    assert check(check_of_ports, on_nodes(9400, release="other")).returncode == 0


@pytest.mark.parametrize(
    ("node_selector", "is_refused"),
    [({"pool": "b"}, False), ({"pool": ""}, False), ({"pool": "a"}, True), ({"zone": "b"}, True)],
    ids=["other nodes", "an empty label", "the same nodes", "perhaps the same nodes"],
)
def test_pods_that_never_share_a_node_may_have_the_same_port(
    check_of_ports: Path, node_selector: dict[str, str], *, is_refused: bool
) -> None:
    stateful_set = on_nodes(2222, release="other")
    pod_spec(stateful_set)["nodeSelector"] = POOL
    done = check(check_of_ports, stateful_set, nodeSelector=node_selector)
    assert (done.returncode != 0) is is_refused
    assert ("worker.nodeSelector" in done.stderr) is is_refused
