"""A second node joins the cluster, is cut off, comes back and leaves."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from devtools.localkube.record import Record
from tests.localkube.conftest import Cluster, probe_pod, wait_until


def test_pods_of_both_nodes_reach_each_other(probe: Cluster, tmp_path: Path) -> None:
    second = probe.instance.second
    assert probe.run("add-node").stdout.strip() == second.node_name
    loaded = probe.run("load", str(tmp_path / "probe.tar")).stdout.splitlines()
    assert ["was already" in line for line in loaded] == [True, False]
    spec = {"nodeName": second.node_name, "terminationGracePeriodSeconds": 0}
    probe.apply(probe_pod("other", {"args": ["serve"]}, **spec))
    probe.kubectl("wait", "--for=condition=Ready", "pod/other", "--timeout=60s")
    other = json.loads(probe.kubectl("get", "pod", "other", "-o", "json"))["status"]["podIP"]
    wait_until(
        "the second node's pod reaches a Service, by its name, whose pod is on the first one",
        lambda: "this is server" in probe.get("other", "http://web.default"),
    )
    assert "this is other" in probe.get("server", f"http://{other}:8080")
    with urllib.request.urlopen(f"http://{other}:8080") as answer:
        assert answer.read() == b"this is other\n"
    status = json.loads(probe.run("status", "-o", "json").stdout)
    assert "second node: kubelet" in [part["name"] for part in status["parts"]]

    before = Record.read(second)
    probe.run("add-node")
    assert Record.read(second) == before, "a healthy node was started again"
    assert before is not None
    before.init.kill_and_wait()
    wait_until("the cluster is healthy: it does not depend on its second node", probe.healthy)
    probe.run("add-node")
    assert Record.read(second) != before

    probe.run("remove-node")
    assert second.node_name not in probe.kubectl("get", "nodes")
    assert not second.state.exists()
