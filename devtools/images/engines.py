"""Docker, Podman and Buildah, and the choice between them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from devtools.common.apt import install_packages
from devtools.common.errors import ImageError
from devtools.common.ui import tail
from devtools.images.engine import KEY_LABEL, Build, Engine
from hvdchart.image.engines import is_working, runtime_options, working_engines

CHOICE = "HVD_IMAGE_ENGINE"


class Buildah(Engine):
    program = "buildah"
    _inspect = ("inspect", "--type=image")
    _labels = ".OCIv1.Config.Labels"
    _identifier = ".FromImageID"

    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        container = self._answer("from", "scratch")
        if container is None:
            raise ImageError(
                f"`buildah from scratch` failed; {tail(self.log)}", "repair Buildah's storage"
            )
        try:
            self._run("add", "--quiet", container, str(tarball), "/")
            self._run("config", "--cmd", "/bin/bash", "--label", f"{KEY_LABEL}={key}", container)
            self._run("commit", "--quiet", container, reference)
        finally:
            self._run("rm", container)

    def build(self, build: Build) -> None:
        self._run("build", *runtime_options(), *_buildah_options(build), str(build.context))

    def save(self, reference: str, archive: Path, name: str) -> None:
        self._run("push", "--quiet", reference, f"docker-archive:{archive}:{name}")


class Podman(Engine):
    program = "podman"
    _labels = ".Labels"

    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        changes = ["--change", "CMD=/bin/bash", "--change", f"LABEL={KEY_LABEL}={key}"]
        self._run("import", "--quiet", *changes, str(tarball), reference)

    def build(self, build: Build) -> None:
        self._run(*runtime_options(), "build", *_buildah_options(build), str(build.context))

    def save(self, reference: str, archive: Path, name: str) -> None:
        self._run("push", "--quiet", reference, f"docker-archive:{archive}:{name}")


class Docker(Engine):
    program = "docker"

    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        changes = ["--change", "CMD /bin/bash", "--change", f"LABEL {KEY_LABEL}={key}"]
        self._run("import", *changes, str(tarball), reference)

    def tag(self, reference: str, names: Sequence[str]) -> None:
        for name in names:
            self._run("tag", reference, name)

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
            raise ImageError(f"`docker create {image}` failed; {tail(self.log)}", "repair Docker")
        try:
            self._run("cp", f"{container}:{path}", str(folder))
        finally:
            self._run("rm", container)
            self._run("rmi", image)


def choose_engine(log: Path) -> Engine:
    """The first of Docker, Podman and Buildah that works here; installs Buildah when none does.

    $HVD_IMAGE_ENGINE overrides the choice. Raises ImageError when that one does not work, or when
    Buildah cannot be installed.
    """
    engines = {kind.program: kind for kind in (Docker, Podman, Buildah)}
    chosen = os.environ.get(CHOICE)
    if chosen:
        if chosen not in engines:
            raise ImageError(f"{CHOICE} is {chosen!r}", f"set it to one of {', '.join(engines)}")
        if not is_working(chosen):
            raise ImageError(
                f"{CHOICE} is {chosen}, which does not work here", "install or start it"
            )
        return engines[chosen](log)
    for program in working_engines():
        return engines[program](log)
    install_packages(["buildah", "runc"], ImageError)
    return Buildah(log)


def ensure_program(program: str, *packages: str) -> None:
    """Installs the Debian packages of a missing program. Raises ImageError when that fails."""
    if shutil.which(program) is None:
        install_packages(packages, ImageError)


def _buildah_options(build: Build) -> list[str]:
    """The options of Buildah, which Podman builds with, too."""
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
