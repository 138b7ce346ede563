"""A second cluster for the lifecycle tests, and what it changes on the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from devtools.localkube import cgroups, health
from devtools.localkube.instance import Instance
from devtools.localkube.node_processes import NodeProcesses
from devtools.localkube.oci import pack_program
from devtools.localkube.processes import kubectl_arguments
from devtools.toolchain import tools

# Not the default name, so that the tests do not touch a cluster that is in use.
NAME = "lifecycle"
REPOSITORY = Path(__file__).parents[2]
# How long a component may take to recover, which sends no event then.
TIMEOUT_SECONDS = 90.0
PROBE_IMAGE = "docker.io/localkube/probe:1"
SHARED_SETTINGS = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic")


@dataclass(frozen=True)
class Cluster:
    """The tests' own cluster, controlled through the command line as a user would."""

    instance: Instance

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "devtools.localkube", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "LOCALKUBE_NAME": self.instance.name}

    def run(
        self, *arguments: str, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=REPOSITORY,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"localkube {' '.join(arguments)}: {done.stderr}")
        return done

    def kubectl_command(self, *arguments: str) -> list[str]:
        return [str(tools.tool("kube")), *kubectl_arguments(self.instance), *arguments]

    def kubectl(self, *arguments: str, given: Any = None, check: bool = True) -> str:
        done = subprocess.run(
            self.kubectl_command(*arguments),
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout + done.stderr

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Create objects, or change them."""
        listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.kubectl("apply", "--filename=-", given=listed)

    def get(self, pod: str, url: str) -> str:
        """What a pod of the probe gets from a URL, or why it gets nothing."""
        return self.kubectl("exec", pod, "--", "/probe", "get", url, check=False)

    def processes(self) -> dict[str, dict[str, Any]]:
        return health.read_status(self.instance)

    def host_process(self, component: str) -> psutil.Process:
        """The component's process. The node records its number in the node's PID namespace only."""
        processes = NodeProcesses.read(self.instance)
        if processes is None:
            pytest.fail("the cluster has no file with its processes")
        wanted = self.processes()[component]["pid"]
        for process in psutil.Process(processes.init.pid).children():
            if number_inside(process) == wanted:
                return process
        return pytest.fail(f"{component} (process {wanted} in the node) does not run")

    def healthy(self) -> bool:
        return health.health(self.instance).healthy


def number_inside(process: psutil.Process) -> int:
    """The process's number in its own PID namespace, that of a container or of the node."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


def machine_state() -> dict[str, Any]:
    """What the cluster could leave on the machine. Builds of images, beside these tests, have
    interfaces and rules of their own.
    """
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    listed = {
        "interfaces": _list(Path("/sys/class/net")),
        "routes": _output("ip", "route").splitlines(),
        "cgroups": [str(path) for root in cgroups.hierarchies() for path in root.iterdir()],
        "mounts": mounts,
        "processes": _output("ps", "-e", "-o", "pid=,args=").splitlines(),
        "state": _list(Path("/var/lib/localkube")),
    }
    own = {kind: [word for word in words if NAME in word] for kind, words in listed.items()}
    # kube-proxy belongs into the network namespace of a node.
    rules = [line for line in _output("nft", "list", "tables").splitlines() if "kube" in line]
    settings = [Path("/proc/sys", name).read_text() for name in SHARED_SETTINGS]
    return {**own, "namespaces": _list(Path("/run/netns")), "rules": rules, "settings": settings}


def _list(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Not for the session: other tests may follow in the same process, and an idle cluster takes time.
@pytest.fixture(scope="package")
def down_cluster() -> Iterator[Cluster]:
    """A cluster that was stopped before the tests, and is removed with its images after them."""
    cluster = Cluster(Instance(NAME))
    cluster.run("down")
    yield cluster
    cluster.run("down", "--images")


# For a function outside of a class, this scope is that of the function.
@pytest.fixture(scope="class")
def cluster(down_cluster: Cluster) -> Cluster:
    """The cluster, running: `up` repairs what an earlier test, or class of tests, has broken."""
    down_cluster.run("up")
    return down_cluster


@pytest.fixture(scope="package")
def built_probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The probe's program."""
    program = tmp_path_factory.mktemp("built") / "probe"
    subprocess.run(
        ["go", "build", "-o", program, "."],
        cwd=Path(__file__).parent / "probe",
        env={**os.environ, **tools.ENVIRONMENT},
        check=True,
    )
    return program


@pytest.fixture(scope="class")
def probe_folder(built_probe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the probe's program, `probe`, and with its image, `probe.tar`."""
    folder = tmp_path_factory.mktemp("probe")
    shutil.copy(built_probe, folder / "probe")
    pack_program(PROBE_IMAGE, folder / "probe", folder / "probe.tar")
    return folder


@pytest.fixture(scope="class")
def probe(cluster: Cluster, probe_folder: Path) -> Cluster:
    """The cluster with the probe's image and a pod `server` of it that answers on port 8080."""
    cluster.run("load", str(probe_folder / "probe.tar"))
    ready = {"readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1}}
    labels = {"app": "server"}
    server = probe_pod("server", {"args": ["serve"], **ready}, terminationGracePeriodSeconds=0)
    server["metadata"]["labels"] = labels
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    cluster.apply(server, service)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=180s")
    return cluster


def probe_pod(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod with one container of the probe's image."""
    containers = [{"name": "probe", "image": PROBE_IMAGE, **container}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return {**pod, "spec": {"containers": containers, **spec}}
