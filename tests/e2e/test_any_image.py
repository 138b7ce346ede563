"""An image of Python alone, whose user the pods are not: an MPI comes from requirements.txt."""

from __future__ import annotations

import pytest

from hvdchart.run.state.run_problems import problem_of
from tests.e2e.packages import LOCKS, download_wheels
from tests.support.namespace import Namespace, Values, image_values
from tests.support.volumes import claimed_folder

# Each rank adds its number, and tells who it is, and where.
ADD = """
import getpass, os, socket, sys, tempfile
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)
tempfile.TemporaryFile(dir=os.path.expanduser("~")).close()
sys.stdout.write(f"SUM {total} UID {os.getuid()} {getpass.getuser()} ON {socket.gethostname()}\\n")
"""
# As OpenShift chooses one: no image has a name for it.
UID = 1000680000


def values(image: dict[str, str], script: str) -> Values:
    """Two workers of an image. A failed attempt is the last one."""
    return {
        "image": image,
        "podSecurityContext": {"runAsUser": UID},
        "code": {"files": {"train.py": script}},
        "master": {"args": ["python3", "train.py"], "backoffLimit": 0},
    }


def with_mpi(image: dict[str, str], mpi: str) -> Values:
    """The same with an MPI for the ranks, whose wheels a volume has in place of a package index."""
    base = values(image, ADD)
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    env = [{"name": name, "value": value} for name, value in index.items()]
    files = {"train.py": ADD, "requirements.txt": (LOCKS / f"{mpi}.in").read_text()}
    return {
        **base,
        "code": {"files": files},
        "worker": {"env": env},
        "master": {**base["master"], "env": env},
        "volumes": [{"name": "wheels", "persistentVolumeClaim": {"claimName": "wheels"}}],
        "volumeMounts": [{"name": "wheels", "mountPath": "/wheels", "readOnly": True}],
    }


@pytest.mark.parametrize("mpi", ["openmpi5", pytest.param("mpich", marks=pytest.mark.rare)])
def test_image_of_python_alone_runs_an_allreduce_of_mpi(
    namespace: Namespace, python_image: dict[str, str], mpi: str
) -> None:
    """Both ranks have the sum, and a name, which no file of the image has for their user."""
    with claimed_folder(namespace, "wheels", download_wheels(mpi)):
        log = namespace.train("hvd", with_mpi(python_image, mpi))
    output = sorted(line for line in log.splitlines() if line.startswith("SUM "))
    assert output == [f"SUM 3 UID {UID} horovod ON hvd-worker-{number}" for number in (0, 1)]


def test_image_without_python_is_named_and_nothing_waits(
    namespace: Namespace, foreign_images: dict[str, str]
) -> None:
    namespace.install("hvd", values(image_values(foreign_images["empty"]), "pass"))
    assert namespace.wait_for_end("hvd", 300) == "Failed", namespace.describe("hvd")
    (master,) = namespace.master_pods("hvd")
    assert "use an image with Python 3" in str(problem_of(master, [])), master["status"]
