"""The clusters that the demo and the tests can use: localkube, kind, or the current kubeconfig."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from devtools.common.ui import step
from devtools.images.build import archive, build
from devtools.localkube import cluster
from devtools.localkube.images import load
from devtools.toolchain.tools import tool


class DemoError(Exception):
    """Something that keeps the demo from going on, with the way out."""


@dataclass(frozen=True)
class Cluster:
    """Where to install. `values` are what this cluster needs beside the spec's own values."""

    environment: dict[str, str]
    stop_hint: str
    values: dict[str, str] = field(default_factory=dict)

    def exports(self, python: Path) -> str:
        """What to export in a shell so that python, helm and kubectl are those used here."""
        folders = [str(python), str(tool("kubectl").parent), str(tool("helm3").parent)]
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*settings, f"PATH={':'.join(folders)}:$PATH"])


def _local() -> Cluster:
    kubeconfig = cluster.up()
    image = build("examples")
    with step(f"load {image.reference} into the cluster"):
        load(image.reference)
    return Cluster(
        {"KUBECONFIG": str(kubeconfig)},
        "python -m devtools.localkube down   # stops the cluster",
    )


def _kind() -> Cluster:
    kind = _program("kind", "install it, or use CLUSTER=local")
    _program("docker", "kind needs a Docker engine")
    clusters = _run([kind, "get", "clusters"]).split()
    if "hvd" not in clusters:
        _run([kind, "create", "cluster", "--name", "hvd", "--wait", "120s"])
    image_archive = archive("examples")
    _run([kind, "load", "image-archive", str(image_archive), "--name", "hvd"])
    kubeconfig = Path(tempfile.gettempdir()) / f"kind-hvd-{os.getuid()}.kubeconfig"
    _run([kind, "export", "kubeconfig", "--name", "hvd", "--kubeconfig", str(kubeconfig)])
    return Cluster(
        {"KUBECONFIG": str(kubeconfig)},
        "kind delete cluster --name hvd   # removes the cluster",
    )


def _current() -> Cluster:
    """The cluster of the current kubeconfig, which must be able to pull the image IMAGE."""
    image = os.environ.get("IMAGE", "")
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        raise DemoError(
            f"CLUSTER=current needs IMAGE=REPOSITORY:TAG (IMAGE is {image!r}), an image that your "
            "cluster can pull and that has /examples/digits.py: build it with `python -m images "
            "build examples`, push it to your registry and name it here"
        )
    server = _run([str(tool("kubectl")), "config", "current-context"]).strip()
    return Cluster(
        {},
        f"(the cluster of context {server!r} is yours and stays)",
        {"image.repository": repository, "image.tag": tag},
    )


def _program(name: str, way_out: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DemoError(f"{name} is not on PATH: {way_out}")
    return found


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"`{' '.join(command[:3])}` failed:\n{done.stderr.strip()}")
    return done.stdout


KINDS: dict[str, Callable[[], Cluster]] = {"local": _local, "kind": _kind, "current": _current}


def start(kind: str) -> Cluster:
    """Make the cluster run with the examples' image in it. Raises DemoError when it cannot."""
    return KINDS[kind]()
