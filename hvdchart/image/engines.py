"""Runs a program in an image, with Docker, Podman or Buildah: the only caller of those."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from hvdchart.errors import ImageError

ENGINES = ("docker", "podman", "buildah")
# An image of a framework may have to be read from disk in full; imports take seconds.
_TIME_LIMIT = 300
Result = subprocess.CompletedProcess[str]


def run_in(image: str, command: Sequence[str], user: int, engine: str | None = None) -> Result:
    """Runs a command in an image as a pod would: any user of group 0, no capabilities, no network.

    `engine` is one of ENGINES, else the first that works here and has the image or can pull it.
    Raises ImageError when no engine can run the image.
    """
    chosen = [engine] if engine else [name for name in ENGINES if _works(name)]
    if not chosen:
        raise ImageError(
            f"none of {', '.join(ENGINES)} works here: start one, or check the image in the "
            "cluster with --in-cluster"
        )
    if engine and not _works(engine):
        raise ImageError(f"{engine} does not work here: install or start it")
    reasons = []
    for name in chosen:
        reason = _fetched(name, image)
        if reason is None:
            return (
                _buildah(image, command, user)
                if name == "buildah"
                else _run([*_OPTIONS[name], f"--user={user}:0", image, *command])
            )
        reasons.append(f"{name}: {reason}")
    raise ImageError(f"{image} is not here and cannot be pulled: " + "; ".join(reasons))


_CONTAINED = (
    *("run", "--rm", "--read-only", "--network=none", "--tmpfs=/tmp", "--entrypoint="),
    *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--env=HOME=/tmp"),
)
_OPTIONS = {"docker": ("docker", *_CONTAINED), "podman": ("podman", *_CONTAINED)}


def _works(engine: str) -> bool:
    return shutil.which(engine) is not None and _run([engine, "info"]).returncode == 0


def _fetched(engine: str, image: str) -> str | None:
    """None when the engine has the image or got it, else its reason."""
    inspect = [engine, "inspect", "--type=image", image]
    if _run(inspect).returncode == 0:
        return None
    pulled = _run([engine, "pull", image])
    lines = (pulled.stderr or pulled.stdout).strip().splitlines()
    return None if pulled.returncode == 0 else (lines[-1] if lines else "no reason given")


def _buildah(image: str, command: Sequence[str], user: int) -> Result:
    """Buildah runs commands in a container that it builds from the image."""
    made = _run(["buildah", "from", "--pull-never", image])
    if made.returncode != 0:
        raise ImageError(f"buildah makes no container of {image}: {made.stderr.strip()}")
    container = made.stdout.strip()
    try:
        options = ["--user", f"{user}:0", "--env", "HOME=/tmp", "--cap-drop", "all"]
        # Its own default wants crun, which refuses machines with control groups of both versions.
        if os.geteuid() == 0 and shutil.which("runc"):
            options += ["--isolation", "oci", "--runtime", "runc"]
        return _run(["buildah", "run", *options, container, "--", *command])
    finally:
        _run(["buildah", "rm", container])


def _run(command: Sequence[str]) -> Result:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=_TIME_LIMIT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"`{' '.join(command[:3])} ...` took over {_TIME_LIMIT} s") from error
