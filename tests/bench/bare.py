"""A bare `mpirun` in one pod, which a Job creates again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.bench.contestants import NAME, Contestant
from tests.bench.mpi_operator import MPIRUN, UID, container, with_output
from tests.faults.storm import MOST_FAULTS


@dataclass(frozen=True)
class Bare(Contestant):
    """Two ranks in a pod of a Job."""

    version: ClassVar[str] = "the image's mpirun"
    kinds: ClassVar[Sequence[str]] = ("Job",)

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        mpirun = container(self.namespace, "mpirun", [*MPIRUN, "--oversubscribe", *command])
        user = {"securityContext": {"runAsUser": UID, "runAsGroup": UID}}
        pod = {"containers": [mpirun], "restartPolicy": "OnFailure", **user}
        spec = {"backoffLimit": MOST_FAULTS, "template": {"spec": with_output(pod, output)}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
        self.namespace.apply({**job, "metadata": {"name": NAME}})
