"""Docker, Podman and Buildah, which build and store images, and the choice between them.

hvdchart/image/engines.py runs a user's images with them: hvdchart is installed without this folder.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from devtools.common.apt import install_packages
from devtools.common.commands import run_logged
from devtools.common.errors import DevtoolsError
from devtools.common.ui import last_lines
from hvdchart.image.engines import choose_engine as working_engine
from hvdchart.image.engines import runtime_options, working_engines

CHOICE = "HVD_IMAGE_ENGINE"
KEY_LABEL = "dev.hvdchart.images.key"


@dataclass(frozen=True)
class Build:
    """One build. `arguments` are ARGs, `secrets` are files by id, `wheels` is the folder that
    receives the compiled wheel.
    """

    context: Path
    dockerfile: Path
    references: Sequence[str]
    arguments: Mapping[str, str]
    secrets: Mapping[str, Path]
    key: str
    wheels: Path | None = None

    def options(self) -> list[str]:
        """Return the options that all engines have."""
        options = ["--file", str(self.dockerfile), "--label", f"{KEY_LABEL}={self.key}"]
        for name, value in self.arguments.items():
            options += ["--build-arg", f"{name}={value}"]
        for name, path in self.secrets.items():
            options += ["--secret", f"id={name},src={path}"]
        return options


class Engine(ABC):
    """A program that builds images and keeps them on this machine.

    Its methods write what they run to `log`, and raise DevtoolsError with the end of it when a
    command fails, unless they say otherwise.
    """

    # The subcommand that describes an image, and the field with its labels.
    _inspect: ClassVar[tuple[str, ...]] = ("image", "inspect")
    _labels: ClassVar[str] = ".Config.Labels"

    def __init__(self, log: Path) -> None:
        self.log = log

    @property
    @abstractmethod
    def program(self) -> str: ...

    def key(self, reference: str) -> str | None:
        """Return the key that a local image was built with.

        Return None without the image, and "" without a key.
        """
        field = f'index {self._labels} "{KEY_LABEL}"'
        return self._answer(*self._inspect, f"--format={{{{{field}}}}}", reference)

    @abstractmethod
    def build(self, build: Build) -> None: ...

    def save(self, reference: str, archive: Path, name: str) -> None:
        """Write a docker-archive in which the image has the reference `name`."""
        self._run("push", "--quiet", reference, f"docker-archive:{archive}:{name}")

    def pull(self, reference: str) -> bool:
        """Pull an image. Return False on a failure; the log then has the reason."""
        return self._answer("pull", reference) is not None

    def tag(self, reference: str, names: Sequence[str]) -> None:
        for name in names:
            self._run("tag", reference, name)

    def remove(self, reference: str) -> None:
        """Remove a reference, and the image if it has no other one.

        On a failure, such as for an image that a container uses, only the log has the reason.
        """
        self._answer("rmi", reference)

    def _answer(self, *arguments: str) -> str | None:
        """Return the output of a command; None on a failure, whose reason is then in the log."""
        done = subprocess.run(
            [self.program, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            with self.log.open("a") as log:
                log.write(f"$ {self.program} {' '.join(arguments)}\n{done.stderr}")
            return None
        return done.stdout.strip()

    def _run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        command = [self.program, *arguments]
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
        run_logged(
            command,
            self.log,
            remedy=f"read {self.log}, correct the cause and run it again: finished images are kept",
            environment={**os.environ, **(environment or {})},
        )


class Buildah(Engine):
    program = "buildah"
    _inspect = ("inspect", "--type=image")
    _labels = ".OCIv1.Config.Labels"

    def build(self, build: Build) -> None:
        self._run("build", *runtime_options(), *_buildah_options(build), str(build.context))


class Podman(Engine):
    program = "podman"
    _labels = ".Labels"

    def build(self, build: Build) -> None:
        self._run(*runtime_options(), "build", *_buildah_options(build), str(build.context))


class Docker(Engine):
    program = "docker"

    def build(self, build: Build) -> None:
        # Docker's cache has the layers of this stage afterwards, so that building it separately to
        # copy the wheel out repeats nothing.
        if build.wheels:
            stage = f"hvd-build-stage:{build.key}"
            self._build(build, "--target=build", f"--tag={stage}")
            self._copy_out(stage, "/srv/.", build.wheels)
        self._build(build, *(f"--tag={reference}" for reference in build.references))

    def save(self, reference: str, archive: Path, name: str) -> None:
        self._run("save", f"--output={archive}", reference)

    def _build(self, build: Build, *options: str) -> None:
        command = ["build", "--network=host", *build.options(), *options, str(build.context)]
        # The classic builder supports neither secrets nor bind mounts.
        self._run(*command, environment={"DOCKER_BUILDKIT": "1"})

    def _copy_out(self, image: str, path: str, folder: Path) -> None:
        container = self._answer("create", image)
        if container is None:
            raise DevtoolsError(
                f"`docker create {image}` failed; {last_lines(self.log)}", "repair Docker"
            )
        try:
            self._run("cp", f"{container}:{path}", str(folder))
        finally:
            self._run("rm", container)
            self._run("rmi", image)


def choose_engine(log: Path) -> Engine:
    """Return the first of Docker, Podman and Buildah that works; install Buildah if none does.

    $HVD_IMAGE_ENGINE overrides the choice. Raises DevtoolsError if that one does not work, or if
    Buildah cannot be installed.
    """
    engines = {kind.program: kind for kind in (Docker, Podman, Buildah)}
    chosen = os.environ.get(CHOICE)
    working = [working_engine(chosen, f"unset {CHOICE}")] if chosen else working_engines()
    if not working:
        install_packages(["buildah", "runc"])
    return engines[working[0] if working else "buildah"](log)


def _buildah_options(build: Build) -> list[str]:
    """Return the options of Buildah, which Podman uses, too."""
    options = build.options()
    for reference in build.references:
        options += ["--tag", reference]
    # The machine's settings for reaching mirrors are for its own network, which needs no plugin.
    options.append("--network=host")
    if os.geteuid() == 0:
        options.append("--isolation=oci")
    if build.wheels:
        # Cached layers would be wrong here: Buildah does not notice that a mounted file changed.
        options += ["--layers=false", f"--volume={build.wheels}:/srv:rw"]
    else:
        options.append("--layers=true")
    return options
