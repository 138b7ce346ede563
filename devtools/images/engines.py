"""The three engines, and the choice between them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import ImageError
from devtools.common.ui import step, tail
from devtools.images.engine import KEY_LABEL, Build, Engine

CHOICE = "HVD_IMAGE_ENGINE"


class Buildah(Engine):
    program = "buildah"

    def key(self, reference: str) -> str | None:
        label = f'{{{{index .OCIv1.Config.Labels "{KEY_LABEL}"}}}}'
        return self._answer("inspect", "--type=image", f"--format={label}", reference)

    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        container = self._answer("from", "scratch")
        if container is None:
            raise ImageError(
                f"`buildah from scratch` failed; {tail(self.log)}", "mend Buildah's storage"
            )
        try:
            self._run("add", "--quiet", container, str(tarball), "/")
            self._run("config", "--cmd", "/bin/bash", "--label", f"{KEY_LABEL}={key}", container)
            self._run("commit", "--quiet", container, reference)
        finally:
            self._run("rm", container)

    def build(self, build: Build) -> None:
        self._run("build", *_runtime(), *_in_place(build), str(build.context))

    def save(self, reference: str, archive: Path, name: str) -> None:
        self._run("push", "--quiet", reference, f"docker-archive:{archive}:{name}")


class Podman(Engine):
    program = "podman"

    def key(self, reference: str) -> str | None:
        label = f'{{{{index .Labels "{KEY_LABEL}"}}}}'
        return self._answer("image", "inspect", f"--format={label}", reference)

    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        changes = ["--change", "CMD=/bin/bash", "--change", f"LABEL={KEY_LABEL}={key}"]
        self._run("import", "--quiet", *changes, str(tarball), reference)

    def build(self, build: Build) -> None:
        self._run(*_runtime(), "build", *_in_place(build), str(build.context))

    def save(self, reference: str, archive: Path, name: str) -> None:
        self._run("push", "--quiet", reference, f"docker-archive:{archive}:{name}")


class Docker(Engine):
    program = "docker"

    def key(self, reference: str) -> str | None:
        label = f'{{{{index .Config.Labels "{KEY_LABEL}"}}}}'
        return self._answer("image", "inspect", f"--format={label}", reference)

    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        changes = ["--change", "CMD /bin/bash", "--change", f"LABEL {KEY_LABEL}={key}"]
        self._run("import", *changes, str(tarball), reference)

    def tag(self, reference: str, names: Sequence[str]) -> None:
        for name in names:
            self._run("tag", reference, name)

    def build(self, build: Build) -> None:
        # The build stage's layers stay in Docker's own cache, so taking the wheel out first costs
        # nothing twice.
        if build.wheels:
            stage = f"hvd-build-stage:{build.key}"
            self._build(build, "--target=build", f"--tag={stage}")
            self._copy_out(stage, "/srv/.", build.wheels)
        self._build(build, *(f"--tag={reference}" for reference in build.references))

    def save(self, reference: str, archive: Path, name: str) -> None:
        self._run("save", f"--output={archive}", reference)

    def _build(self, build: Build, *options: str) -> None:
        command = ["build", "--network=host", *build.options(), *options, str(build.context)]
        # The classic builder knows neither secrets nor bind mounts.
        self._run(*command, environment={"DOCKER_BUILDKIT": "1"})

    def _copy_out(self, image: str, inside: str, folder: Path) -> None:
        container = self._answer("create", image)
        if container is None:
            raise ImageError(f"`docker create {image}` failed; {tail(self.log)}", "mend Docker")
        try:
            self._run("cp", f"{container}:{inside}", str(folder))
        finally:
            self._run("rm", container)
            self._run("rmi", image)


def choose_engine(log: Path) -> Engine:
    """Docker when its engine answers, else Podman, else Buildah, which Debian's packages bring.

    $HVD_IMAGE_ENGINE names one of them instead. Raises ImageError when there is none to be had.
    """
    engines = {kind.program: kind for kind in (Docker, Podman, Buildah)}
    chosen = os.environ.get(CHOICE)
    if chosen:
        if chosen not in engines:
            raise ImageError(f"{CHOICE} is {chosen!r}", f"set it to one of {', '.join(engines)}")
        if not _works(chosen):
            raise ImageError(
                f"{CHOICE} is {chosen}, which does not work here", "install or start it"
            )
        return engines[chosen](log)
    for program, kind in engines.items():
        if _works(program):
            return kind(log)
    _install("buildah", "runc")
    return Buildah(log)


def ensure_program(program: str, *packages: str) -> None:
    """Installs the Debian packages of a program that is not there. Raises ImageError when that
    cannot be.
    """
    if shutil.which(program) is None:
        _install(*packages)


def _works(program: str) -> bool:
    question = {"docker": ["info"], "podman": ["info"], "buildah": ["info"]}[program]
    if shutil.which(program) is None:
        return False
    return subprocess.run([program, *question], capture_output=True, check=False).returncode == 0


def _install(*packages: str) -> None:
    wanted = " ".join(packages)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ImageError(
            f"{wanted} is missing, and this is not root on a machine with apt-get",
            f"install {wanted}, Podman or Docker",
        )
    log = cache_dir() / "logs" / "apt-images.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]
    with step(f"install Debian packages: {wanted}"), log.open("w") as output:
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            done = subprocess.run(
                [*apt, *arguments], stdout=output, stderr=subprocess.STDOUT, check=False,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )  # fmt: skip
            if done.returncode != 0:
                raise ImageError(
                    f"`apt-get {arguments[0]}` failed (status {done.returncode}); {tail(log)}",
                    f"mend the machine's package sources, or install {wanted} by hand",
                )


def _in_place(build: Build) -> list[str]:
    """The options of Buildah, which Podman builds with too."""
    options = build.options()
    for reference in build.references:
        options += ["--tag", reference]
    # The machine's own network is what its settings for reaching mirrors are for, and it needs no
    # plugin.
    options.append("--network=host")
    if os.geteuid() == 0:
        options.append("--isolation=oci")
    if build.wheels:
        # Kept layers would be wrong here: Buildah does not see that a mounted file has changed.
        options += ["--layers=false", f"--volume={build.wheels}:/srv:rw"]
    else:
        options.append("--layers=true")
    return options


def _runtime() -> list[str]:
    # crun, their first choice, refuses a machine that has control groups of both versions.
    return ["--runtime=runc"] if os.geteuid() == 0 and shutil.which("runc") else []
