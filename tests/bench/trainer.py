"""Kubeflow Trainer with the runtime that it ships for MPI, and with a failure policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from devtools.toolchain.tools import JOBSET, TRAINER, module_folder, module_version
from tests.bench.contestants import NAME, Contestant
from tests.bench.mpi_operator import HOME, MPIRUN, PROBE, SSHD, with_output
from tests.faults.storm import MOST_FAULTS
from tests.support.controllers import ALONE, Controller
from tests.support.openssh.image import openssh_image

FOLDER = "trainer"
GROUP = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "metadata": {"name": NAME}}
RUNTIME = "manifests/base/runtimes/deepspeed_distributed.yaml"


def trainer_controllers() -> list[Controller]:
    """The controllers of Trainer and of JobSet, which it needs."""
    jobset = module_folder(FOLDER, JOBSET)
    folder = module_folder(FOLDER, TRAINER)
    manager = folder / "manifests/base/manager/controller_manager_config.yaml"
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
    }
    jobset_controller = Controller(
        "jobset",
        crds=[*(jobset / "config/components/crd/bases").glob("*.yaml")],
        # It takes the address from the option alone.
        arguments=("--metrics-bind-address=0",),
        webhooks=jobset / "config/components/webhook/manifests.yaml",
        port=9443,
        config={**config, **ALONE},
    )
    config = {**yaml.safe_load(manager.read_text()), "certManagement": {"enable": False}}
    own_controller = Controller(
        "trainer",
        crds=[*(folder / "manifests/base/crds").glob("trainer.*.yaml")],
        webhooks=folder / "manifests/base/webhook/manifests.yaml",
        port=9444,
        config={**config, **ALONE},
    )
    return [jobset_controller, own_controller]


@dataclass(frozen=True)
class Trainer(Contestant):
    """Trainer, whose JobSet starts all its Jobs again when the launcher fails."""

    version: ClassVar[str] = (
        f"Trainer {module_version(FOLDER, TRAINER)} with JobSet {module_version(FOLDER, JOBSET)}"
    )
    kinds: ClassVar[Sequence[str]] = ("TrainJob", "JobSet", "Job")
    launcher_label: ClassVar[str] = "jobset.sigs.k8s.io/replicatedjob-name=launcher"

    @property
    def image(self) -> str:
        return openssh_image()

    def prepare(self, output: Path | None = None) -> None:
        runtime = yaml.safe_load((module_folder(FOLDER, TRAINER) / RUNTIME).read_text())["spec"]
        runtime["mlPolicy"]["mpi"]["sshAuthMountPath"] = f"{HOME}/.ssh"
        node, launcher = runtime["template"]["spec"]["replicatedJobs"]
        for job in (node, launcher):
            self._complete(job["template"]["spec"], output)
        pod = node["template"]["spec"]["template"]["spec"]["containers"][0]
        pod |= {"command": SSHD[:1], "args": SSHD[1:]}
        pod["readinessProbe"] = PROBE
        # A launcher with a rank may look for its own name before DNS has it, and fail.
        runtime["mlPolicy"]["mpi"]["runLauncherAsNode"] = False
        runtime["template"]["spec"]["failurePolicy"] = {
            "maxRestarts": MOST_FAULTS,
            "rules": [{"name": "restart", "action": "RestartJobSet"}],
        }
        launcher["template"]["spec"]["backoffLimit"] = 0
        launcher["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        self.namespace.apply({**GROUP, "kind": "TrainingRuntime", "spec": runtime})

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        spec = {
            "runtimeRef": {"kind": "TrainingRuntime", "name": NAME},
            "trainer": {"numNodes": 2, "command": [*MPIRUN, *command]},
        }
        self.namespace.apply({**GROUP, "kind": "TrainJob", "spec": spec})

    def remove(self) -> None:
        super().remove()
        self.namespace.kubectl("delete", "TrainingRuntime", NAME, "--timeout=60s")

    def _complete(self, job: dict[str, Any], output: Path | None) -> None:
        job["backoffLimit"] = MOST_FAULTS
        pod = with_output(job["template"]["spec"], output)
        for container in pod["containers"]:
            container |= {"image": self.image, "imagePullPolicy": "IfNotPresent"}
        job["template"]["spec"] = pod
