"""Two more nodes join the cluster. One is cut off, comes back, and leaves before the other."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path

import pytest

from devtools.localkube.record import Record
from tests.localkube.conftest import Cluster, probe_pod, wait_until


def seconds_for_a_megabyte(address: str) -> float:
    """How long this machine takes to get it from a pod of the probe."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://{address}:8080/megabyte") as answer:
        answer.read()
    return time.monotonic() - began


@pytest.mark.rare
def test_pods_of_all_nodes_reach_each_other(probe: Cluster, tmp_path: Path) -> None:
    second, third, _ = probe.instance.others
    assert "no second node" in probe.run("shape", "--rate=8mbit", check=False).stderr
    assert probe.run("add-node").stdout.strip() == second.node_name
    assert probe.run("add-node").stdout.strip() == third.node_name
    loaded = probe.run("load", str(tmp_path / "probe.tar")).stdout.splitlines()
    assert ["was already" in line for line in loaded] == [True, False, False]
    addresses = {}
    for node in (second, third):
        pod = f"on-{node.node}"
        spec = {"nodeName": node.node_name, "terminationGracePeriodSeconds": 0}
        probe.apply(probe_pod(pod, {"args": ["serve"]}, **spec))
        probe.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=180s")
        status = json.loads(probe.kubectl("get", "pod", pod, "-o", "json"))["status"]
        addresses[pod] = status["podIP"]
    wait_until(
        "the second node's pod reaches a Service, by its name, whose pod is on the first one",
        lambda: "this is server" in probe.get("on-2", "http://web.default"),
    )
    for source, pod in (("server", "on-2"), ("on-2", "on-3"), ("on-3", "on-2")):
        assert f"this is {pod}" in probe.get(source, f"http://{addresses[pod]}:8080")

    shaped = probe.run("shape", "--rate=8mbit").stdout.splitlines()
    assert [line.split(":")[0] for line in shaped] == [second.node_name, third.node_name]
    for address in addresses.values():
        # Eight megabits take a second, less what a queue lets through at once.
        assert seconds_for_a_megabyte(address) > 0.8
    delayed = probe.run("shape", "--delay=1ms", check=False)
    assert delayed.returncode == 0 or "CONFIG_NET_SCH_NETEM" in delayed.stderr
    probe.run("shape", "--off")
    wait_until("no limit", lambda: all(seconds_for_a_megabyte(a) < 0.8 for a in addresses.values()))

    parts = json.loads(probe.run("status", "-o", "json").stdout)["parts"]
    assert {"node 2: kubelet", "node 3: kubelet"} <= {part["name"] for part in parts}
    records = [Record.read(node) for node in (second, third)]
    probe.run("add-node", "2")
    assert Record.read(second) == records[0], "a healthy node was started again"
    assert records[0] is not None
    records[0].init.kill_and_wait()
    wait_until("the cluster is healthy: it does not depend on its second node", probe.healthy)
    assert probe.run("add-node").stdout.strip() == second.node_name
    assert [Record.read(node) for node in (second, third)] != records
    assert Record.read(third) == records[1]

    probe.run("remove-node", "2")
    assert second.node_name not in probe.kubectl("get", "nodes")
    assert not second.state.exists()
    probe.run("remove-node")
    assert third.node_name not in probe.kubectl("get", "nodes")
    assert "no such node" in probe.run("remove-node").stderr
