"""Kubeflow's MPI Operator beside the local cluster, to compare the chart with: a controller process
of this machine, and MPIJobs as its examples have them.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devtools.toolchain.tools import MPI_OPERATOR, module_folder, tool
from hvd_pods.common.threads import YIELD
from tests.e2e.cluster import Namespace
from tests.waiting import wait_until

FOLDER = "peer"
CRD = "manifests/base/kubeflow.org_mpijobs.yaml"
# The images' user, as in the operator's own images. Its sshd cannot use ports below 1024.
UID, HOME, PORT = 1000, "/home/horovod", 2222
# What the operator's base image has in its configuration files.
SSHD = f"-f /dev/null -o HostKey={HOME}/.ssh/id_rsa -o StrictModes=no -o PidFile=none".split()
SSH = f"ssh -p {PORT} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"


@contextmanager
def running_operator(namespace: Namespace) -> Iterator[None]:
    """Run the controller until the end of the block; it elects itself in the namespace."""
    program = tool("mpi-operator")
    crd = module_folder(FOLDER, MPI_OPERATOR) / CRD
    namespace.kubectl("apply", "--server-side", "--filename", str(crd))
    # `--for=condition` fails where a new CRD has no conditions yet; this form waits.
    established = "--for=jsonpath={.status.acceptedNames.kind}=MPIJob"
    namespace.kubectl("wait", established, "crd/mpijobs.kubeflow.org", "--timeout=60s")
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [str(program), f"--lock-namespace={namespace.name}", "-alsologtostderr"],
            env=namespace.environment(), stdout=log, stderr=log,
        )  # fmt: skip

        def leads() -> bool:
            log.seek(0)
            text = log.read()
            assert process.poll() is None, text
            return "Started workers" in text

        try:
            wait_until(leads, 60, "the MPI Operator leads")
            yield
        finally:
            process.terminate()
            process.wait(30)


def mpi_job(
    name: str, image: str, command: Sequence[str], policy: str, folder: Path | None
) -> dict[str, Any]:
    """An MPIJob of two workers of one rank. `folder` of this machine is /output in the workers."""
    container = {"image": image, "imagePullPolicy": "IfNotPresent"}
    settings = {
        "securityContext": {"runAsUser": UID, "runAsGroup": UID},
        "terminationGracePeriodSeconds": 30,
    }
    mpirun = [
        *("mpirun", "-np", "2", "--map-by", "slot", "--bind-to", "none"),
        # Its examples also exclude openib, which replaces Debian's own exclusions and costs 0.15 s.
        *("--mca", "plm_rsh_agent", SSH, "--mca", "pml", "ob1"),
        *("-x", f"{YIELD}=1"),
    ]
    launcher = {**container, "name": "launcher", "command": [*mpirun, *command]}
    worker: dict[str, Any] = {
        **container,
        "name": "worker",
        "command": ["/usr/sbin/sshd", "-De", "-p", str(PORT), *SSHD],
        # Its documentation recommends one; only WaitForWorkersReady makes use of it.
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    volumes: dict[str, Any] = {}
    if folder is not None:
        worker["volumeMounts"] = [{"name": "output", "mountPath": "/output"}]
        volumes = {"volumes": [{"name": "output", "hostPath": {"path": str(folder)}}]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 1,
            "sshAuthMountPath": f"{HOME}/.ssh",
            "launcherCreationPolicy": policy,
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 6},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "template": {"spec": {**settings, "containers": [launcher]}},
                },
                "Worker": {
                    "replicas": 2,
                    "template": {"spec": {**settings, **volumes, "containers": [worker]}},
                },
            },
        },
    }
