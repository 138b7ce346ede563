"""The MPIs that an image may have, on real pods: each in its own words, with the ranks in place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from images.builder.catalogue import load_catalogue
from tests.e2e.packages import install_packages
from tests.support.namespace import Namespace, Values, image_values
from tests.support.volumes import claimed_folder

MPI = "/opt/mpi"
# Each rank adds its number, so that the sum tells whether it reached the others.
ADD = """
import os, socket, sys
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)
name = MPI.Get_library_version().splitlines()[0]
sys.stdout.write(f"SUM {total} MARK {os.environ['MARK']} ON {socket.gethostname()} BY {name}\\n")
"""
# The last rank fails before it joins the others, which wait for it.
FAIL = """
import os
if os.environ["PMI_RANK"] == "2":
    raise SystemExit(5)
from mpi4py import MPI
"""


def values(library: str, script: str, **changes: Any) -> Values:
    """A host of one slot and a host of two, all with the MPI at /opt/mpi first."""
    path = {"name": "PATH", "value": f"{MPI}/bin:/usr/local/bin:/usr/bin:/bin"}
    libraries = {"name": "LD_LIBRARY_PATH", "value": f"{MPI}/lib"}
    of_ranks = {
        "PYTHONPATH": MPI,
        "MPI4PY_LIBMPI": f"{MPI}/lib/{library}",
        "MARK": "worker",
        "OMP_NUM_THREADS": "1",
    }
    env = [{"name": name, "value": value} for name, value in of_ranks.items()]
    return {
        "worker": {"env": [path, libraries, *env]},
        "workerGroups": [{"name": "a", "number": 1}, {"name": "b", "number": 1, "slots": 2}],
        "master": {
            "args": ["python3", "-c", script],
            "env": [path, libraries, {"name": "MARK", "value": "master"}],
            "backoffLimit": 0,
        },
        "volumes": [{"name": "mpi", "persistentVolumeClaim": {"claimName": "mpi"}}],
        "volumeMounts": [{"name": "mpi", "mountPath": MPI, "readOnly": True}],
        **changes,
    }


BOUND = {
    "binding": {"to": "core", "coresPerRank": 1},
    "preload": ["mpi4py"],
    "workersTimeoutSeconds": 120,
}
OVER_TCP = {"interface": "eth0", "transport": "TCP"}


def installed_for_the_image(mpi: str) -> Path:
    """The folder of an MPI and of mpi4py for the Python of the image."""
    return install_packages(mpi, load_catalogue()["examples"].versions["python"])


@pytest.fixture(scope="class")
def log_of_sum(request: pytest.FixtureRequest, namespace: Namespace) -> str:
    """The log of a run of three ranks with the MPI of the class."""
    mpi = request.cls
    with claimed_folder(namespace, "mpi", installed_for_the_image(mpi.FOLDER)):
        return namespace.train("hvd", values(mpi.LIBRARY, ADD, launch=BOUND, network=OVER_TCP))


def sums(log: str) -> list[str]:
    """What the ranks printed."""
    return [line for line in log.splitlines() if line.startswith("SUM ")]


class OfAnotherMPI:
    """What holds for each MPI: the tests of its class have a namespace, and a run, of their own."""

    FOLDER: str
    LIBRARY: str
    NAME: str
    RELEASE: str

    def test_launcher_is_recognised(self, log_of_sum: str) -> None:
        assert f"mpirun is {self.NAME}" in log_of_sum

    def test_ranks_are_warm(self, log_of_sum: str) -> None:
        assert "start cold" not in log_of_sum, "a variable of this MPI is unknown"

    def test_ranks_reduce_over_all_with_the_workers_environment(self, log_of_sum: str) -> None:
        assert [line.startswith("SUM 6 MARK worker ON ") for line in sums(log_of_sum)] == [True] * 3

    def test_ranks_have_the_library_of_this_mpi(self, log_of_sum: str) -> None:
        assert [self.RELEASE in line for line in sums(log_of_sum)] == [True] * 3

    def test_ranks_are_on_the_planned_hosts(self, log_of_sum: str) -> None:
        hosts = sorted(re.findall(r" ON (\S+) ", "\n".join(sums(log_of_sum))))
        assert hosts == ["hvd-a-0", "hvd-b-0", "hvd-b-0"]
        placed = dict(re.findall(r"rank (\d) of 3 on (\S+), CPUs \S+", log_of_sum))
        assert placed == {"0": "hvd-a-0", "1": "hvd-b-0", "2": "hvd-b-0"}

    def test_ranks_of_a_host_are_bound_to_cores_of_their_own(self, log_of_sum: str) -> None:
        one, two = re.findall(r"on hvd-b-0, CPUs (\S+)", log_of_sum)
        assert one != two


class TestOpenMPI5(OfAnotherMPI):
    FOLDER = "openmpi5"
    LIBRARY = "libmpi.so.40"
    NAME = "Open MPI 5"
    RELEASE = "Open MPI v5"


class TestIntelMPI(OfAnotherMPI):
    FOLDER = "intel"
    LIBRARY = "libmpi.so.12"
    NAME = "Intel MPI"
    RELEASE = "Intel(R) MPI Library 2021"


class TestMPICH(OfAnotherMPI):
    FOLDER = "mpich"
    LIBRARY = "libmpi.so.12"
    NAME = "MPICH"
    RELEASE = "MPICH Version:      5"


def test_failed_rank_ends_the_run_with_its_exit_code(namespace: Namespace) -> None:
    """Hydra itself would wait for the others, and they for the rank."""
    with claimed_folder(namespace, "mpi", installed_for_the_image("mpich")):
        namespace.install("hvd", values("libmpi.so.12", FAIL, launch=BOUND))
        assert namespace.wait_for_end("hvd") == "Failed", namespace.describe("hvd")
    (master,) = namespace.master_pods("hvd")
    ended = master["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 5
    # Hydra does not name the rank either.
    assert ended["message"] == "rank 2 on hvd-b-0: exit code 5\n"


SEEN = """
import os, socket, sys
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)
sys.stdout.write(f"SUM {total} UID {os.getuid()} ON {socket.gethostname()} IN {os.getcwd()}\\n")
"""


def test_public_images_layout_runs_as_root_under_baseline(
    namespace: Namespace, foreign_images: dict[str, str]
) -> None:
    """Root, its own mpirun and /horovod, under `baseline` and on a read-only root."""
    level = "pod-security.kubernetes.io/enforce=baseline"
    namespace.kubectl("label", "namespace", namespace.name, "--overwrite", level)
    context = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
    values: Values = {
        "image": image_values(foreign_images["public"]),
        "master": {"args": ["python3", "-c", SEEN], "backoffLimit": 0},
        "podSecurityContext": context,
        "cleanup": "Never",
    }
    where = "IN /horovod/examples"
    expected = [f"SUM 3 UID 0 ON hvd-worker-{number} {where}" for number in (0, 1)]
    assert sorted(sums(namespace.train("hvd", values))) == expected
    example = namespace.kubectl("exec", "hvd-worker-0", "--", "python3", "example.py")
    assert example.strip() == "an example of the image"
    container = namespace.get("pod", "hvd-worker-0")["spec"]["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
