"""The clusters that the demo can use: localkube, kind, or the cluster of the current kubeconfig."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.ui import step
from devtools.localkube import cluster
from devtools.localkube.images import load_everywhere
from devtools.toolchain.tools import tool
from images.builder.build import build_image, image_archive


@dataclass(frozen=True)
class DemoCluster:
    """A cluster that has the examples' image.

    environment: variables such as KUBECONFIG that select it.
    stop_hint: the command that stops it, shown at the end.
    values: chart values that it needs in addition to those of the spec.
    """

    environment: dict[str, str]
    stop_hint: str
    values: dict[str, str] = field(default_factory=dict)

    def exports(self, python: Path) -> str:
        """Return shell assignments that make python, helm and kubectl those of the demo."""
        folders = [str(python), str(tool("kubectl").parent), str(tool("helm4").parent)]
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*settings, f"PATH={':'.join(folders)}:$PATH"])


def start_localkube(nodes: int = 1) -> DemoCluster:
    """Ensure that localkube runs with this many nodes, and that all have the examples' image."""
    kubeconfig = cluster.up(nodes=nodes)
    image = build_image("examples")
    with step(f"load {image.reference} into the cluster"):
        load_everywhere(image.reference)
    return DemoCluster(
        {"KUBECONFIG": str(kubeconfig)},
        "python -m devtools.localkube down   # stops the cluster",
        {"worker.spread": "Required"} if nodes > 1 else {},
    )


def _start_kind() -> DemoCluster:
    kind = _find_program("kind", "install it, or use CLUSTER=local")
    _find_program("docker", "install Docker and start it: kind needs its engine")
    # A separate file: kind would change the current context of the user's kubeconfig.
    kubeconfig = cache_dir() / "kind-hvd.kubeconfig"
    here = ("--name", "hvd", "--kubeconfig", str(kubeconfig))
    if "hvd" in _run(kind, "get", "clusters").split():
        _run(kind, "export", "kubeconfig", *here)
    else:
        _run(kind, "create", "cluster", *here, "--wait", "120s")
    _run(kind, "load", "image-archive", str(image_archive("examples")), "--name", "hvd")
    return DemoCluster(
        {"KUBECONFIG": str(kubeconfig)}, "kind delete cluster --name hvd   # removes the cluster"
    )


def _use_current_context() -> DemoCluster:
    """Return the cluster of the current kubeconfig, which must be able to pull the image $IMAGE.

    Raises DevtoolsError when $IMAGE has no tag, and without a current context.
    """
    image = os.environ.get("IMAGE", "")
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        raise DevtoolsError(
            f"CLUSTER=current needs IMAGE=REPOSITORY:TAG (IMAGE is {image!r}): an image with "
            "/examples/digits.py that your cluster can pull",
            "build it with `python -m images build examples`, push it to your registry, and set"
            " IMAGE to its name there",
        )
    context = _run(str(tool("kubectl")), "config", "current-context").strip()
    return DemoCluster(
        {},
        f"(the cluster of context {context!r} is yours and keeps running)",
        {"image.repository": repository, "image.tag": tag},
    )


def _find_program(name: str, remedy: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise DevtoolsError(f"{name} is not on PATH", remedy)
    return path


def _run(*command: str) -> str:
    return read_output(command, remedy="run it by hand, or use CLUSTER=local")


KINDS: dict[str, Callable[[], DemoCluster]] = {
    "local": start_localkube,
    "kind": _start_kind,
    "current": _use_current_context,
}


def start(kind: str) -> DemoCluster:
    """Ensure that the cluster runs and has the examples' image. kind: one of KINDS.

    Raises DevtoolsError when the cluster does not start, when a program that it needs is missing,
    and when the image cannot be built.
    """
    return KINDS[kind]()
