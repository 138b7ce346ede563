"""deploy of a project with a Dockerfile, with this machine's builder, on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from hvdchart.image.build_image import Source
from hvdchart.image.engines import choose_engine
from tests.e2e.command import hvdchart, namespace_options, write_spec
from tests.support.namespace import Namespace

NAME = "hvd-e2e-own-image"
LOAD = f"{sys.executable} -m devtools.localkube load"


@dataclass(frozen=True)
class Project:
    """A spec of a project with a Dockerfile, and the reference of the image that it makes."""

    spec: str
    reference: str


@pytest.fixture
def project(namespace: Namespace, tmp_path: Path) -> Iterator[Project]:
    # The cluster may still have the image of an earlier run of this test.
    (tmp_path / "train.py").write_text(f"print('trained by my own image', {uuid4().int})")
    (tmp_path / "Dockerfile").write_text(f"FROM {namespace.image}\nCOPY train.py /srv/\n")
    spec = Path(write_spec(tmp_path, namespace, ["python3", "/srv/train.py"]))
    document = {**json.loads(spec.read_text()), "image": {"repository": NAME}}
    spec.write_text(json.dumps(document))
    project = Project(str(spec), Source(tmp_path, NAME).reference())
    yield project
    command = [choose_engine(None), "rmi", project.reference]
    subprocess.run(command, capture_output=True, check=False)


@pytest.mark.rare
def test_deploy_builds_loads_and_trains_and_does_it_once(
    namespace: Namespace, project: Project
) -> None:
    options = [project.spec, "--load-with", LOAD, *namespace_options(namespace)]
    done = hvdchart(namespace, "deploy", *options)
    assert f"built {project.reference} in " in done.stderr
    assert "trained by my own image" in done.stdout
    again = hvdchart(namespace, "deploy", *options, "--detach")
    # The kubelet tells of a new image within a minute: until then it is loaded once more.
    assert f"building {project.reference}" not in again.stderr
