"""Images of Python and pip packages alone: SSH comes from ssh.image, MPI from requirements.txt."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.run.pod_problems import problem_of
from tests.e2e.cluster import Namespace, Values
from tests.e2e.mpis import LOCKS, wheels
from tests.e2e.volumes import claimed_folder

TRAIN = """
import os, socket, sys
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)
sys.stdout.write(f"SUM {total} UID {os.getuid()} ON {socket.gethostname()}\\n")
"""
# As OpenShift chooses one: no image has a name for it.
UID = 1000680000


def values(image: dict[str, str], ssh_image: dict[str, str], **changes: Any) -> Values:
    """Two workers of an image, and wheels from a volume in place of a package index."""
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    env = [{"name": name, "value": value} for name, value in index.items()]
    return {
        "image": image,
        "ssh": {"image": ssh_image},
        "podSecurityContext": {"runAsUser": UID},
        "worker": {"env": env},
        "master": {"args": ["python3", "train.py"], "env": env, "backoffLimit": 0},
        "volumes": [{"name": "wheels", "persistentVolumeClaim": {"claimName": "wheels"}}],
        "volumeMounts": [{"name": "wheels", "mountPath": "/wheels", "readOnly": True}],
        **changes,
    }


@pytest.mark.parametrize("mpi", ["openmpi5", pytest.param("mpich", marks=pytest.mark.rare)])
def test_image_with_neither_ssh_nor_mpi_runs_an_allreduce(
    namespace: Namespace, wheels_image: dict[str, str], ssh_image: dict[str, str], mpi: str
) -> None:
    files = {"train.py": TRAIN, "requirements.txt": (LOCKS / f"{mpi}.in").read_text()}
    with claimed_folder(namespace, "wheels", wheels(mpi)):
        namespace.train("hvd", values(wheels_image, ssh_image, code={"files": files}))
    output = [line for line in namespace.log("hvd").splitlines() if line.startswith("SUM ")]
    assert sorted(output) == [f"SUM 3 UID {UID} ON hvd-worker-{number}" for number in (0, 1)]


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ("python", "use an image with Python 3"),
        ("ssh", "has no ssh-keygen: set ssh.image"),
        ("cpu", "sshd of ssh.image is for arm64, and this node is x86-64"),
    ],
)
def test_what_an_image_lacks_is_named_and_nothing_waits(
    namespace: Namespace,
    wheels_image: dict[str, str],
    ssh_image: dict[str, str],
    foreign_images: dict[str, str],
    lacks: str,
    told: str,
) -> None:
    """The image with OpenSSH has no Python."""
    image = ssh_image if lacks == "python" else wheels_image
    brought = {} if lacks == "ssh" else ssh_image
    if lacks == "cpu":
        brought = dict(zip(("repository", "tag"), foreign_images["arm64"].split(":"), strict=True))
    namespace.install("hvd", values(image, brought, volumes=[], volumeMounts=[]))
    assert namespace.wait_for_end("hvd", 300) == "Failed", namespace.describe("hvd")
    (attempt,) = namespace.attempts("hvd")
    (status,) = attempt["status"]["containerStatuses"]
    problem = problem_of(attempt, [])
    said = f"{problem}" if problem else status["state"]["terminated"]["message"]
    assert told in said, attempt["status"]
