"""deploy of a project with a Dockerfile, with this machine's builder, on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from hvdchart.image.build_image import Source
from hvdchart.image.engines import choose_engine
from tests.e2e.command import here, hvdchart, write_spec
from tests.support.namespace import Namespace

NAME = "hvd-e2e-own-image"
LOAD = f"{sys.executable} -m devtools.localkube load"


@pytest.mark.rare
def test_deploy_builds_loads_and_trains_and_does_it_once(
    namespace: Namespace, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    # The cluster may still have the image of an earlier run of this test.
    (project / "train.py").write_text(f"print('trained by my own image', {uuid4().int})")
    (project / "Dockerfile").write_text(f"FROM {namespace.image}\nCOPY train.py /srv/\n")
    spec = Path(write_spec(project, namespace, ["python3", "/srv/train.py"]))
    document = {**json.loads(spec.read_text()), "image": {"repository": NAME}}
    spec.write_text(json.dumps(document))
    reference = Source(project, NAME).reference()
    try:
        options = [str(spec), "--load-with", LOAD, *here(namespace)]
        done = hvdchart(namespace, "deploy", *options)
        assert f"built {reference} in " in done.stderr
        assert "trained by my own image" in done.stdout
        again = hvdchart(namespace, "deploy", *options, "--detach")
        # The kubelet tells of a new image within a minute: until then it is loaded once more.
        assert f"building {reference}" not in again.stderr
        assert f"{reference} is " in again.stderr
    finally:
        subprocess.run([choose_engine(None), "rmi", reference], capture_output=True, check=False)
