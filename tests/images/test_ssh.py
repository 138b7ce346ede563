"""The image with OpenSSH: it refuses and admits what the OpenSSH of other images does."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from devtools.images.build import archive
from tests.unit.hvd_pods.worker.ssh.pods import SshPods, start_ssh_pods

# With the fixture `ssh_pods` of this file.
from tests.unit.hvd_pods.worker.ssh.test_login import (
    test_session_has_the_containers_environment,  # noqa: F401
)
from tests.unit.hvd_pods.worker.ssh.test_refusals import *  # noqa: F403


@pytest.fixture(scope="session")
def openssh() -> Iterator[Path]:
    """The programs that the chart copies out of the image."""
    with TemporaryDirectory() as name, tarfile.open(archive("ssh")) as image:
        # Another user than ours runs them.
        Path(name).chmod(0o755)
        manifest = image.extractfile("manifest.json")
        assert manifest is not None
        for layer in json.load(manifest)[0]["Layers"]:
            with tarfile.open(fileobj=image.extractfile(layer)) as files:
                files.extractall(name, filter="data")
        yield Path(name) / "openssh"


@pytest.fixture(scope="session")
def ssh_pods(request: pytest.FixtureRequest, openssh: Path) -> Iterator[SshPods]:
    """A worker and its master whose image has no OpenSSH."""
    user = getattr(request, "param", 4321)
    if user == 0 and os.geteuid() != 0:
        pytest.skip("only root can run a worker as root")
    with start_ssh_pods(user, openssh) as pods:
        yield pods
