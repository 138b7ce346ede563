"""A second cluster for the lifecycle tests, and a probe in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localkube.instance import Instance
from devtools.localkube.oci import pack_program
from devtools.toolchain import tools
from tests.localkube.machine import NAME
from tests.localkube.pods import PROBE_IMAGE, probe_pod
from tests.support.localkube import Cluster


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
