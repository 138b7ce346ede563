"""Measures a launch on up to 1,024 hosts: the chart's master, a real API server and real sshd.

python -m tests.bench.bench_thousand [--hosts 65,129,257,1000] [--mpi openmpi5]

The EndpointSlices are made by hand, and 64 sshd have the addresses of all hosts; see farm.py. All
hosts share this machine's cores, so that the seconds of a launch say little. Memory, processes and
open files are those of a real master. The aims, which nothing checks: hosts known in 2 s, and
256 MiB for the master at 1,000 hosts. Needs root.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from rich.console import Console
from rich.table import Table

from devtools.localkube import cluster
from tests.bench.farm import PORT, Farm, address, start_farm
from tests.bench.process_tree import Peak, watch
from tests.chart.render import Manifest, helm_template, of_kind, one, parse_manifests, run_settings
from tests.e2e.cluster import Namespace
from tests.e2e.mpis import installed
from tests.unit.hvd_pods.worker.ssh.pods import PYTHON

# How many endpoints Kubernetes puts into one EndpointSlice.
SLICE = 100
# The longest that one launch may take, in seconds, on a busy machine.
TIMEOUT = 1200
MASTER_PROGRAM = "/run/horovod/bin/hvd_pods/master/main.py"
MPIS = ("openmpi5", "intel", "mpich")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="65,129,257,1000", help="numbers of hosts")
    parser.add_argument("--mpi", default=",".join(MPIS[:1]), help=f"some of {','.join(MPIS)}")
    options = parser.parse_args()
    sizes = [int(number) for number in options.hosts.split(",")]
    manifests = rendered(max(sizes))
    table = Table(
        "MPI", "hosts", "hosts known, s", "launch, s", "master, MiB", "of that ssh", "ssh", "files",
        title="A launch; files: open in the launcher",
    )  # fmt: skip
    revision = run_settings(manifests)["groups"][0]["revision"]
    with start_farm(revision) as farm, release(manifests) as namespace:
        for mpi in options.mpi.split(","):
            for hosts in sizes:
                table.add_row(mpi, str(hosts), *launch(farm, namespace, manifests, mpi, hosts))
    Console(width=120).print(table)


IMAGE = {"image": {"repository": "bench", "tag": "1"}}


def rendered(hosts: int) -> list[Manifest]:
    """The chart's objects for a run of `true` on this number of hosts."""
    values = {
        **IMAGE, "worker": {"number": hosts}, "ssh": {"port": PORT}, "master": {"args": ["true"]},
    }  # fmt: skip
    done = helm_template(values)
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


@contextmanager
def release(manifests: Sequence[Manifest]) -> Iterator[Namespace]:
    """A namespace of the real API server with what the master reads there, but no pods."""
    name = f"bench-{secrets.token_hex(4)}"
    namespace = Namespace(name, cluster.up(), "")
    namespace.kubectl("create", "namespace", name)
    try:
        for kind in ("ServiceAccount", "Role", "RoleBinding", "Service", "ConfigMap"):
            for manifest in of_kind(list(manifests), kind):
                manifest["metadata"].pop("namespace", None)
                for subject in manifest.get("subjects", []):
                    subject["namespace"] = name
                # The Service has no selector: its EndpointSlices are those of the benchmark.
                manifest.get("spec", {}).pop("selector", None)
                namespace.kubectl("create", "--filename", "-", input=json.dumps(manifest))
        yield namespace
    finally:
        namespace.kubectl("delete", "namespace", name, "--wait=false")


def make_slices(namespace: Namespace, service: str, pods: Sequence[str]) -> None:
    """Replace the EndpointSlices of the Service by some with these pods."""
    label = f"kubernetes.io/service-name={service}"
    namespace.kubectl("delete", "endpointslices", "--selector", label)
    for start in range(0, len(pods), SLICE):
        endpoints = [
            {
                "addresses": [address(number)],
                "targetRef": {"kind": "Pod", "name": pods[number], "namespace": namespace.name},
            }
            for number in range(start, min(start + SLICE, len(pods)))
        ]
        manifest = {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": f"{service}-{start}", "labels": dict([label.split("=")]),
            },
            "ports": [{"name": "ssh", "port": PORT}], "endpoints": endpoints,
        }  # fmt: skip
        namespace.kubectl("create", "--filename", "-", input=json.dumps(manifest))


def launch(
    farm: Farm, namespace: Namespace, manifests: list[Manifest], mpi: str, hosts: int
) -> tuple[str, ...]:
    """Run the master; the columns of its row."""
    run = run_settings(manifests)
    (group,) = run["groups"]
    group.update(number=hosts, maximum=hosts)
    pods = [f"{group['statefulSet']}-{number}" for number in range(hosts)]
    make_slices(namespace, run["service"], pods)
    variables = mpi_variables(mpi)
    farm.set_environment({**variables, "HVD_SLOTS": "1"})
    master = farm.add_master(
        f"{mpi}-{hosts}-{secrets.token_hex(2)}", [f"{pod}.{run['service']}" for pod in pods]
    )
    server = account(namespace, master.root / "account", one(manifests, "ServiceAccount"))
    log = master.root / "log"
    with log.open("wb") as output:
        process = master.start(
            PYTHON, "-I", MASTER_PROGRAM, stdout=output, stderr=subprocess.STDOUT,
            env={
                **variables, **server, "HVD_RUN": json.dumps(run), "HVD_POD_IP": "127.0.0.1",
                "HVD_JOB": "bench", "HVD_JOB_UID": "bench",
            },
        )  # fmt: skip
        with watch(process.pid) as peak:
            code = process.wait(TIMEOUT)
    text = log.read_text(errors="replace")
    if code or text.count("[hvd] rank ") != hosts:
        raise SystemExit(f"{mpi}, {hosts} hosts: exit code {code}\n{text[-3000:]}")
    return (*seconds(text), *columns(peak))


def mpi_variables(mpi: str) -> dict[str, str]:
    """The environment of an image whose MPI is this one."""
    folder = str(installed(mpi))
    roots = dict.fromkeys(("OPAL_PREFIX", "PRTE_PREFIX", "I_MPI_ROOT"), folder)
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
    return {
        "KUBERNETES_SERVICE_HOST": str(url.hostname),
        "KUBERNETES_SERVICE_PORT": str(url.port),
    }


def seconds(log: str) -> tuple[str, str]:
    """How long the master looked for its hosts, and how long the launcher ran."""
    marks = ("waiting for hosts", r"\$ mpirun", "training finished")
    pattern = ".*".join(rf"\+([\d.]+)s\] {mark}" for mark in marks)
    match = re.search(pattern, log, re.DOTALL)
    assert match is not None, log
    began, launched, ended = map(float, match.groups())
    return f"{launched - began:.1f}", f"{ended - launched:.1f}"


def columns(peak: Peak) -> tuple[str, ...]:
    """The most memory, its clients of SSH, and the most files that one process had open."""
    ssh, files = peak.processes["ssh"], max(peak.open_files.values())
    return f"{peak.memory:.0f}", f"{peak.memory_by_name.get('ssh', 0):.0f}", str(ssh), str(files)


if __name__ == "__main__":
    main()
