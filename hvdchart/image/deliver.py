"""Deliver a built image to the nodes of a cluster: through a registry, or directly."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hvdchart.errors import ImageError
from hvdchart.image.build_image import Source, build_image
from hvdchart.image.engines import Report, choose_engine, stream_command


@dataclass(frozen=True)
class Target:
    """The destination of an image: the nodes, through a command; its registry; or none."""

    loader: tuple[str, ...] = ()
    pushes: bool = False


def provide_image(
    source: Source,
    target: Target,
    is_on_nodes: Callable[[str], bool],
    report: Report,
    engine: str | None = None,
) -> str:
    """Build the image of a folder and deliver it to the target; return its reference.

    `is_on_nodes` says whether all nodes have an image: then it is neither built nor loaded. Raises
    ImageError when no engine works, when it fails, and for a repository without a registry to push
    to; and FileError when a file of the folder cannot be read.
    """
    reference = source.reference()
    if target.pushes and "/" not in source.repository:
        raise ImageError(
            f"`image.repository` is {source.repository}, which names no registry to push to: put "
            "REGISTRY/TEAM/ before it, or use --load-with or --no-push"
        )
    if target.loader and is_on_nodes(reference):
        report(f"{reference} is on all nodes already")
        return reference
    used = choose_engine(engine)
    build_image(source, used, report)
    deliver_image(reference, target, used, report)
    return reference


def deliver_image(reference: str, target: Target, engine: str, report: Report) -> None:
    """Deliver an image of the engine to the target. Raises ImageError when that fails."""
    if target.loader:
        report(f"loading {reference}")
        load_image(reference, target.loader, report)
    if target.pushes:
        report(f"pushing {reference}")
        push_image(reference, engine, report)


def push_image(reference: str, engine: str, report: Report) -> None:
    """Push an image to its registry, with the engine's own credentials.

    Raises ImageError, with the last line of the engine, when that fails.
    """
    # Podman and Buildah would push an image with a short name to localhost.
    destination = [] if engine == "docker" else [f"docker://{reference}"]
    code, lines = stream_command([engine, "push", reference, *destination], report)
    if code:
        host = reference.partition("/")[0]
        raise ImageError(
            f"cannot push {reference}: {lines[-1] if lines else 'it printed no reason'}; log in "
            f"with `{engine} login {host}`, or correct the repository"
        )


def load_image(reference: str, loader: Sequence[str], report: Report) -> None:
    """Run a command that loads an image into a cluster, with the image as its last argument.

    Raises ImageError when the program is not on PATH, or fails.
    """
    if shutil.which(loader[0]) is None:
        raise ImageError(f"cannot load {reference}: no program {loader[0]!r} is on PATH")
    code, lines = stream_command([*loader, reference], report)
    if code:
        raise ImageError(
            f"cannot load {reference}: `{' '.join(loader)}` ended with exit code {code}: "
            f"{'; '.join(lines)}"
        )
