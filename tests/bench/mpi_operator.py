"""Kubeflow's MPI Operator: MPIJobs as its examples have them. And `mpirun` without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from devtools.toolchain.tools import MPI_OPERATOR, module_folder, module_version
from hvd_pods.shared.thread_counts import YIELD
from tests.bench.contestants import NAME, Contestant
from tests.faults.storm import MOST_FAULTS
from tests.support.controllers import Controller
from tests.support.openssh.image import openssh_image

FOLDER = "peer"
CRD = "manifests/base/kubeflow.org_mpijobs.yaml"
# The images' user, as in the operator's own images. Its sshd cannot use ports below 1024.
UID = 1000
HOME = "/home/horovod"
PORT = 2222
# What the operator's base image, which Trainer's runtimes use too, has in its configuration files.
SSHD = [
    "/usr/sbin/sshd",
    "-De",
    "-p",
    str(PORT),
    "-f",
    "/dev/null",
    "-o",
    "PidFile=none",
    "-o",
    f"HostKey={HOME}/.ssh/id_rsa",
    "-o",
    "StrictModes=no",
]
SSH = f"ssh -p {PORT} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
# Its examples also exclude openib, which replaces Debian's own exclusions and costs 0.15 s.
MPIRUN = [
    "mpirun",
    "-np",
    "2",
    "--map-by",
    "slot",
    "--bind-to",
    "none",
    "--mca",
    "plm_rsh_agent",
    SSH,
    "--mca",
    "pml",
    "ob1",
    "-x",
    f"{YIELD}=1",
]
PROBE = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}


def mpi_operator() -> Controller:
    """The controller. It elects itself in the namespace."""
    crd = module_folder(FOLDER, MPI_OPERATOR) / CRD
    arguments = ("--lock-namespace=default", "-alsologtostderr")
    return Controller("mpi-operator", (crd,), ("Started workers",), arguments)


def container(image: str, name: str, command: Sequence[str]) -> dict[str, Any]:
    pulled = {"image": image, "imagePullPolicy": "IfNotPresent"}
    return {"name": name, **pulled, "command": [*command]}


def with_output(spec: dict[str, Any], output: Path | None) -> dict[str, Any]:
    """The spec of a pod whose containers have a folder of this machine as /output."""
    if output is None:
        return spec
    mount = {"volumeMounts": [{"name": "output", "mountPath": "/output"}]}
    return {
        **spec,
        "containers": [{**container, **mount} for container in spec["containers"]],
        "volumes": [{"name": "output", "hostPath": {"path": str(output)}}],
    }


@dataclass(frozen=True)
class MpiOperator(Contestant):
    """The MPI Operator with one of its policies for creating the launcher."""

    policy: str = "AtStartup"
    version: ClassVar[str] = f"MPI Operator {module_version(FOLDER, MPI_OPERATOR)}"
    kinds: ClassVar[Sequence[str]] = ("MPIJob", "Job")
    launcher_label: ClassVar[str] = "training.kubeflow.org/job-role=launcher"

    @property
    def image(self) -> str:
        return openssh_image()

    def prepare(self, output: Path | None = None) -> None:
        # It is built before anything is measured.
        openssh_image()

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        launcher = container(self.image, "launcher", [*MPIRUN, *command])
        # Its documentation recommends a probe; only WaitForWorkersReady makes use of it.
        worker = {**container(self.image, "worker", SSHD), "readinessProbe": PROBE}
        user = {"securityContext": {"runAsUser": UID, "runAsGroup": UID}}
        pods = {"containers": [launcher], **user}, {"containers": [worker], **user}
        replicas = {
            kind: {"replicas": number, "template": {"spec": with_output(pod, output)}}
            for kind, number, pod in zip(("Launcher", "Worker"), (1, 2), pods, strict=True)
        }
        spec = {
            "slotsPerWorker": 1,
            "sshAuthMountPath": f"{HOME}/.ssh",
            "launcherCreationPolicy": self.policy,
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": MOST_FAULTS},
            "mpiReplicaSpecs": replicas,
        }
        job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": spec}
        self.namespace.apply({**job, "metadata": {"name": NAME}})


@dataclass(frozen=True)
class Bare(Contestant):
    """Two ranks of `mpirun` in one pod, which a Job creates again."""

    version: ClassVar[str] = "the image's mpirun"
    kinds: ClassVar[Sequence[str]] = ("Job",)

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        mpirun = container(self.image, "mpirun", [*MPIRUN, "--oversubscribe", *command])
        user = {"securityContext": {"runAsUser": UID, "runAsGroup": UID}}
        pod = {"containers": [mpirun], "restartPolicy": "OnFailure", **user}
        spec = {"backoffLimit": MOST_FAULTS, "template": {"spec": with_output(pod, output)}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
        self.namespace.apply({**job, "metadata": {"name": NAME}})
