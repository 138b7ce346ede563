"""A user's own image, with this machine's builder: pushed to a real registry."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdchart.image.build_image import Source
from hvdchart.image.deliver import Target, provide_image
from hvdchart.image.engines import choose_engine
from tests.support.registry import registry

NAME = "hvd-test-own-image"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose image has one small layer and no base."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY train.py /\n")
    (folder / "train.py").write_text("pass")
    return folder


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A registry without TLS, as people have it on their own machine."""
    with registry(tmp_path) as address:
        settings = tmp_path / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
        yield address


def test_an_image_is_built_and_pushed(address: str, project: Path) -> None:
    engine = choose_engine(None)
    remarks = list[str]()
    source = Source(project, f"{address}/team/{NAME}")
    reference = provide_image(source, Target(pushes=True), lambda _: False, remarks.append)
    try:
        assert any("COPY train.py /" in remark for remark in remarks), remarks
        connection = http.client.HTTPConnection(address)
        kinds = "application/vnd.oci.image.manifest.v1+json"
        kinds += ", application/vnd.docker.distribution.manifest.v2+json"
        path = f"/v2/team/{NAME}/manifests/{reference.rpartition(':')[2]}"
        connection.request("GET", path, headers={"Accept": kinds})
        manifest = json.loads(connection.getresponse().read())
        assert len(manifest["layers"]) == 1, manifest
    finally:
        subprocess.run([engine, "rmi", reference], capture_output=True, check=False)
