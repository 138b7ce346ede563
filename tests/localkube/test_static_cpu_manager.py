"""A plan for cpuManager: static, on a real kubelet with that policy, on the cores of this machine.

The pods are those that the chart renders, with their resources and everything else that the kubelet
judges, but with a program in their containers that only waits, and without volumes: training images
take a minute to load into this cluster, and the kubelet's decision does not depend on them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from devtools.common.waiting import wait_until
from devtools.toolchain.tools import tool
from hvdchart.plan.planner import make_plan
from hvdchart.run.helm import render_manifests
from hvdchart.spec.load import parse_spec
from tests.localkube.machine import TIMEOUT_SECONDS
from tests.localkube.pods import PROBE_IMAGE, probe_pod
from tests.support.localkube import Cluster

CORES = os.cpu_count() or 1
# Not reservedSystemCPUs: with one of two CPUs in such a list, none is left for the master.
RESERVED = "100m"
SPEC = f"""
apiVersion: hvdchart/v1
name: static
nodes:
  - name: here
    count: 1
    coresPerSocket: {CORES}
    memory: 8Gi
    cpuManager: static
    reserved: {{cpu: {RESERVED}, memory: 7Gi}}
image: {{repository: localkube/probe, tag: "1"}}
train: {{command: [train]}}
"""


class Kubelet:
    """The kubelet of the tests' cluster, which starts again with other settings."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._file = cluster.instance.state / "kubelet.yaml"
        self.state = cluster.instance.state / "kubelet" / "cpu_manager_state"

    def restart(self, allocatable: str, **settings: Any) -> None:
        """Start it with further settings, and wait until its node has so many CPUs for pods."""
        self._file.write_text(yaml.safe_dump(yaml.safe_load(self._file.read_text()) | settings))
        process = self._cluster.host_process("kubelet")
        # The kubelet refuses the state of another policy, and writes it again when it ends.
        process.kill()
        process.wait()
        self.state.unlink(missing_ok=True)
        path = "jsonpath={.status.allocatable.cpu}"
        node = ("get", "node", self._cluster.instance.node_name, "-o", path)
        wait_until(
            lambda: (
                self._cluster.kubectl(*node, check=False) == allocatable
                and self.state.exists()
                and self._cluster.is_healthy()
            ),
            TIMEOUT_SECONDS,
            f"the node has {allocatable} CPUs for pods",
        )

    def exclusive(self) -> list[str]:
        """The CPUs that containers have for themselves."""
        entries = json.loads(self.state.read_text()).get("entries", {})
        return [cpus for containers in entries.values() for cpus in containers.values()]


@pytest.fixture
def static_kubelet(probe: Cluster) -> Iterator[Kubelet]:
    kubelet = Kubelet(probe)
    policy: dict[str, Any] = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": RESERVED}}
    kubelet.restart(f"{CORES * 1000 - 100}m", **policy)
    yield kubelet
    probe.kubectl("delete", "statefulsets,jobs,pods", "--all", "--force", "--grace-period=0")
    kubelet.restart(str(CORES), **dict.fromkeys(policy))


def rendered_objects() -> Iterator[dict[str, Any]]:
    """What Helm renders for the plan, with the waiting program in all containers."""
    text = render_manifests(make_plan(parse_spec(SPEC)), "default", str(tool("helm4")))
    for item in yaml.safe_load_all(text):
        template = (item or {}).get("spec", {}).get("template")
        if template:
            # The master, which does not run here, makes the keys that are mounted.
            del template["spec"]["volumes"]
            for container in template["spec"]["containers"]:
                container |= {"image": PROBE_IMAGE, "command": ["/probe", "serve"]}
                for key in ("volumeMounts", "startupProbe"):
                    container.pop(key, None)
        if item and "helm.sh/hook" not in item["metadata"].get("annotations", {}):
            yield item


@pytest.mark.skipif(CORES < 2, reason="one core for the worker, one for the rest")
def test_worker_of_a_static_plan_gets_its_cores_and_master_and_daemons_run_beside_it(
    probe: Cluster, static_kubelet: Kubelet
) -> None:
    requests = {"resources": {"requests": {"cpu": "500m"}}}
    probe.apply(*rendered_objects(), probe_pod("daemon", {"args": ["serve"], **requests}))
    wait_until(
        lambda: probe.kubectl("get", "pods", "-oname").count("pod/static-") == 2,
        TIMEOUT_SECONDS,
        "both pods are there",
    )
    probe.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod", "--all", "--timeout=3m")
    pods = json.loads(probe.kubectl("get", "pods", "-o", "json"))["items"]
    classes = {pod["metadata"]["name"]: pod["status"]["qosClass"] for pod in pods}
    assert classes["static-worker-0"] == "Guaranteed"
    assert any(name.startswith("static-master-") for name in classes)
    (cpus,) = static_kubelet.exclusive()
    # The first core is for what the kubelet reserves, the master and the daemon.
    assert cpus == ("1" if CORES == 2 else f"1-{CORES - 1}")
