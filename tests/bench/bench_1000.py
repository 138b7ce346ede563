"""Measures a run of up to 4,000 workers: a real control plane, the chart's master and its agent.

python -m tests.bench.bench_1000 [--hosts 64,128,256,512,1000,4000]

The API server, the scheduler and the controllers are real. kwok plays the nodes and their kubelets.
One agent has the addresses of all pods (farm.py). All of it shares this machine's cores, so that
the seconds of a launch say little; memory, processes, open files and requests are those of a real
master. The aims, which nothing checks: hosts known in 2 s, and 256 MiB for the master at 1,000
hosts. Needs root.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from devtools.common.waiting import wait_until
from devtools.docs_gen.generated import markdown_table
from devtools.localkube import cluster
from devtools.toolchain.tools import KWOK, module_folder, tool
from tests.bench.farm import MOST_HOSTS, NETWORK, PORT, Farm, start_farm
from tests.bench.process_tree import watch_memory
from tests.bench.report import publish_figures
from tests.chart.render import Manifest, helm_template, of_kind, one, parse_manifests, run_settings
from tests.e2e.packages import install_packages
from tests.support.namespace import Namespace
from tests.unit.hvd_pods.worker.agent.pods import PYTHON

# Pods for each node that kwok plays, as kubelets allow.
PODS_PER_NODE = 110
# The longest that one phase or launch may take, in seconds, on a busy machine.
TIMEOUT = 1200
# More daemons and sessions do not fit into 24 GiB.
MOST_LAUNCHED = 512
# What a controller manager sends with Kubernetes' own settings: requests a second, and at once.
# That of the local cluster may send more.
STOCK_RATE = 20
STOCK_BURST = 30
MASTER_PROGRAM = "/run/horovod/bin/hvd_pods/master/main.py"
MPI = "openmpi5"
PLAYED = {"hvd-bench": "played"}
# What a master asks the API server for.
ASKED = ("endpointslices", "events", "jobs", "pods", "secrets", "statefulsets")

Figures = dict[str, float]
# The figures of a size with the heads of their columns.
PHASES = {
    "made": "pods made, s",
    "placed": "with a node, s",
    "ready": "ready, s",
    "listed": "in slices, s",
    "removed": "removed, s",
}
LAUNCH = {
    "known": "known, s",
    "launch": "launch, s",
    "memory": "master, MiB",
    "client_memory": "clients, MiB",
    "clients": "clients",
    "files": "open files",
    "cpu": "CPU, s",
    "requests": "requests",
}


def main() -> None:
    """Measure, and publish the figures of all sizes so far after each one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="64,128,256,512,1000,4000", help="numbers of hosts")
    sizes = [int(number) for number in parser.parse_args().hosts.split(",")]
    manifests = rendered(max(sizes))
    measured: dict[int, Figures] = {}
    with (
        start_farm(run_settings(manifests), mpi_variables()) as farm,
        release(manifests) as namespace,
        played_nodes(namespace, max(sizes)),
    ):
        for size in sizes:
            created = make_pods(namespace, manifests, size)
            measured[size] = {**created.seconds}
            if size <= MOST_HOSTS:
                measured[size] |= launch(farm, namespace, manifests, created)
            measured[size]["removed"] = remove_pods(namespace, manifests)
            text = f"{phase_table(measured)}\n\n{launch_table(measured)}"
            figures = {str(at): seconds for at, seconds in measured.items()}
            publish_figures("bench-1000", "performance.md", 1, figures, text)


def phase_table(measured: Mapping[int, Figures]) -> str:
    """The seconds from the creation of the StatefulSet until all pods have come so far."""
    head = ("Workers", *PHASES.values(), f"least with {STOCK_RATE} requests/s, s")
    rows = []
    for size, figures in measured.items():
        least = max(0, size - STOCK_BURST) / STOCK_RATE
        rows.append((size, *(f"{figures[name]:.1f}" for name in PHASES), f"{least:.0f}"))
    return markdown_table(head, rows)


def launch_table(measured: Mapping[int, Figures]) -> str:
    """What a launch takes, for the sizes that were launched or at least found."""
    rows = [
        (
            size,
            *(
                f"{figure:.1f}".removesuffix(".0") if figure else ""
                for figure in map(figures.get, LAUNCH)
            ),
        )
        for size, figures in measured.items()
        if "known" in figures
    ]
    return markdown_table((f"Hosts, {MPI}", *LAUNCH.values()), rows)


def rendered(hosts: int) -> list[Manifest]:
    """The chart's objects for a run of `true` on this number of hosts."""
    values = {
        "image": {"repository": "bench", "tag": "1"},
        "worker": {"number": hosts},
        "agent": {"port": PORT},
        "master": {"args": ["true"]},
    }
    done = helm_template(values)
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


@contextmanager
def release(manifests: Sequence[Manifest]) -> Iterator[Namespace]:
    """A namespace with the chart's objects, but for the Job: the master runs on this machine."""
    name = f"bench-{secrets.token_hex(4)}"
    namespace = Namespace(name, cluster.up(), "")
    namespace.kubectl("create", "namespace", name)
    try:
        for kind in ("ServiceAccount", "Role", "RoleBinding", "Service", "ConfigMap", "Secret"):
            for manifest in of_kind(list(manifests), kind):
                manifest["metadata"].pop("namespace", None)
                for subject in manifest.get("subjects", []):
                    subject["namespace"] = name
                namespace.kubectl("create", "--filename", "-", input=json.dumps(manifest))
        yield namespace
    finally:
        namespace.kubectl("delete", "namespace", name, "--wait=false")


@contextmanager
def played_nodes(namespace: Namespace, pods: int) -> Iterator[None]:
    """Nodes for so many pods, and kwok, which plays their kubelets until the end of the block."""
    names = [f"played-{number}" for number in range(-(-pods // PODS_PER_NODE))]
    room = {"cpu": "1k", "memory": "1Ti", "pods": str(PODS_PER_NODE)}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": PLAYED},
            "spec": {"taints": [{"key": "hvd-bench", "effect": "NoSchedule"}]},
            "status": {"allocatable": room, "capacity": room},
        }
        for name in names
    ]
    stages = module_folder("kwok", KWOK) / "kustomize" / "stage"
    kinds = ("node/fast/node-*", "node/heartbeat-with-lease/node-*", "pod/fast/pod-*")
    files = [file for kind in kinds for file in stages.glob(f"{kind}.yaml")]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [
                str(tool("kwok")),
                f"--kubeconfig={namespace.kubeconfig}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-label-selector=hvd-bench=played",
                f"--cidr={NETWORK[1]}/20",
                # Nodes that renew no lease are taken for dead after 50 s, and their pods with them.
                "--node-lease-duration-seconds=40",
                *(f"--config={file}" for file in files),
            ],
            stdout=log,
            stderr=log,
        )
        try:
            namespace.apply({"apiVersion": "v1", "kind": "List", "items": nodes})
            namespace.kubectl("wait", "node", *names, "--for=condition=Ready", "--timeout=120s")
            yield
        finally:
            namespace.kubectl("delete", "node", *names)
            process.terminate()
            process.wait(30)


@dataclass(frozen=True)
class Made:
    """The workers of a run: the address of each pod, and the seconds until all were there."""

    addresses: dict[str, str]
    seconds: Figures


def make_pods(namespace: Namespace, manifests: list[Manifest], size: int) -> Made:
    """Let the control plane make the workers, and wait until all are in EndpointSlices."""
    workers = one(manifests, "StatefulSet")
    pod = workers["spec"]["template"]["spec"]
    pod["nodeSelector"] = PLAYED
    pod["tolerations"] = [{"operator": "Exists"}]
    workers["spec"]["replicas"] = size
    began = time.monotonic()
    namespace.kubectl("create", "--filename", "-", input=json.dumps(workers))
    arrived: Figures = {}
    while len(arrived) < 4:
        seconds = time.monotonic() - began
        assert seconds < TIMEOUT, f"{size} workers: {arrived}"
        for phase, count in count_pods(namespace, workers["metadata"]["name"]).items():
            if count >= size:
                arrived.setdefault(phase, seconds)
    return Made(endpoints(namespace), arrived)


def count_pods(namespace: Namespace, workers: str) -> dict[str, int]:
    """How many pods have come how far. Each is read in its shortest form."""
    status = namespace.get("statefulset", workers).get("status", {})
    created = status.get("replicas", 0)
    ready = status.get("readyReplicas", 0)
    # Only ready pods need no look at their nodes.
    listed = len(endpoints(namespace)) if created else 0
    waiting = 0
    if created > ready:
        pending = ("--field-selector=spec.nodeName=", "--output=name")
        waiting = len(namespace.kubectl("get", "pods", *pending).split())
    return {"made": created, "ready": ready, "listed": listed, "placed": created - waiting}


def endpoints(namespace: Namespace) -> dict[str, str]:
    """The addresses of the pods that the EndpointSlices have, by the pods' names."""
    form = '{range .items[*].endpoints[*]}{.targetRef.name}={.addresses[0]}{"\\n"}{end}'
    text = namespace.kubectl("get", "endpointslices", f"--output=jsonpath={form}")
    return dict(line.split("=") for line in text.split())


def remove_pods(namespace: Namespace, manifests: list[Manifest]) -> float:
    """Scale the workers to zero, as the master does at the end; the seconds until all are gone."""
    name = one(manifests, "StatefulSet")["metadata"]["name"]
    began = time.monotonic()
    namespace.kubectl("scale", "statefulset", name, "--replicas=0")

    # `kubectl wait` asks for each pod in turn, five a second.
    def none_is_left() -> bool:
        return not namespace.kubectl("get", "pods", "--output=name")

    wait_until(none_is_left, TIMEOUT, "all pods are removed")
    seconds = time.monotonic() - began
    namespace.kubectl("delete", "statefulset", name)
    return seconds


def launch(farm: Farm, namespace: Namespace, manifests: list[Manifest], created: Made) -> Figures:
    """Run the master; what it took. With too many hosts, it ends when it knows them."""
    run = run_settings(manifests)
    (group,) = run["groups"]
    hosts = len(created.addresses)
    # Each size is a run of its own, which the record of the one before does not end.
    run["id"] = f"{run['id']}-{hosts}"
    group.update(number=hosts, maximum=hosts)
    if hosts > MOST_LAUNCHED:
        run.update(mode="custom", args=["true"], allow_idle_workers=True)
    names = {f"{pod}.{run['service']}": where for pod, where in created.addresses.items()}
    master = farm.add_master(f"master-{hosts}", names)
    server = account(namespace, master.root / "account", one(manifests, "ServiceAccount"))
    log = master.root / "log"
    before = requests(namespace)
    with log.open("wb") as output:
        process = master.start(
            PYTHON,
            "-I",
            MASTER_PROGRAM,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **mpi_variables(),
                **server,
                "HVD_RUN": json.dumps(run),
                "HVD_POD_IP": "127.0.0.1",
                "HVD_JOB": "bench",
                "HVD_JOB_UID": "bench",
            },
        )
        with watch_memory(process.pid) as peak:
            code = process.wait(TIMEOUT)
    text = log.read_text(errors="replace")
    if code or (hosts <= MOST_LAUNCHED and text.count("[hvd] rank ") != hosts):
        raise SystemExit(f"{hosts} hosts: exit code {code}\n{text[-3000:]}")
    asked = requests(namespace) - before
    return seconds(text) | {
        "memory": peak.memory,
        "client_memory": peak.client_memory,
        "clients": peak.clients,
        "files": peak.open_files,
        "cpu": peak.cpu_seconds,
        "requests": asked,
    }


def requests(namespace: Namespace) -> float:
    """How many requests the API server has had for what a master asks for. While nothing happens
    to the pods, nobody else asks.
    """
    text = namespace.kubectl("get", "--raw", "/metrics")
    counts = re.findall(
        r'^apiserver_request_total{.*resource="(\w+)".*} (\S+)$', text, re.MULTILINE
    )
    return sum(float(count) for resource, count in counts if resource in ASKED)


def mpi_variables() -> dict[str, str]:
    """The environment of an image that has the MPI."""
    folder = str(install_packages(MPI))
    roots = dict.fromkeys(("OPAL_PREFIX", "PRTE_PREFIX"), folder)
    path = f"{folder}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {**roots, "PATH": path, "LD_LIBRARY_PATH": f"{folder}/lib", "HOME": "/tmp"}


def account(namespace: Namespace, folder: Path, service_account: Manifest) -> dict[str, str]:
    """Write a pod's service account, and return the variables that name its API server."""
    config: dict[str, Any] = yaml.safe_load(namespace.kubeconfig.read_text())["clusters"][0]
    authority = base64.b64decode(config["cluster"]["certificate-authority-data"])
    token = namespace.kubectl("create", "token", service_account["metadata"]["name"])
    folder.mkdir()
    (folder / "ca.crt").write_bytes(authority)
    (folder / "token").write_text(token)
    (folder / "namespace").write_text(namespace.name)
    url = urlsplit(config["cluster"]["server"])
    return {"KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}


def seconds(log: str) -> Figures:
    """How long the master looked for its hosts, and how long the launcher ran."""
    marks = (r"attempt \d+ waits for workers", r"\$ ", "training finished")
    pattern = ".*".join(rf"\+([\d.]+)s\] {mark}" for mark in marks)
    match = re.search(pattern, log, re.DOTALL)
    assert match is not None, log
    began, launched, ended = map(float, match.groups())
    return {"known": launched - began, "launch": ended - launched}


if __name__ == "__main__":
    main()
