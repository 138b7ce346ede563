"""The command image check, with an engine that records its calls and in a small API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hvdchart.image.check import UNKNOWN_USER, probe_pod
from hvdchart.image.probe import MARK
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.image.test_check import GOOD

pytestmark = pytest.mark.timeout(120)


def test_image_check_runs_the_probe_as_an_unknown_user(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("run", f"banner\n{MARK}{json.dumps(GOOD)}\n")
    done = hvdchart("image", "check", "image:1", "--engine", "docker")
    assert (done.code, done.errors) == (0, "")
    assert done.output.startswith("image:1\n  ok  Python 3.8+")
    assert f"--user={UNKNOWN_USER}:0" in docker.calls[-1].arguments
    docker.answer("run", f"{MARK}{json.dumps({**GOOD, 'horovod': False})}\n")
    lacking = hvdchart("image", "check", "image:1", "--engine", "docker", "--mode", "elastic")
    assert lacking.code == 9
    assert lacking.errors.endswith(
        "hvdchart: image:1 cannot be used with launch.mode elastic; missing: Horovod\n"
    )


def test_image_check_in_cluster_runs_the_probe_in_a_pod(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    name = "hvdchart-image-check-x1"
    fake_cluster.created_status = {"phase": "Succeeded"}
    fake_cluster.log(name, f"{MARK}{json.dumps(GOOD)}", end=True)
    done = hvdchart("image", "check", "image:1", "--in-cluster", "-n", "mine")
    assert (done.code, done.errors) == (0, "")
    request = fake_cluster.wait_for("pods", "create")
    assert request.url == "/api/v1/namespaces/mine/pods"
    assert request.body == probe_pod("image:1")


def test_image_alone_prints_its_subcommands(hvdchart: Command) -> None:
    done = hvdchart("image")
    assert done.code == 2
    assert "check  Check whether an image meets the chart's requirements." in (
        done.output + done.errors
    )
