"""The interface of the programs that build and store images."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from devtools.common.errors import ImageError
from devtools.common.ui import tail

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
    use_cache: bool = True  # reuse layers of earlier builds

    def options(self) -> list[str]:
        """The options that all engines have."""
        options = ["--file", str(self.dockerfile), "--label", f"{KEY_LABEL}={self.key}"]
        for name, value in self.arguments.items():
            options += ["--build-arg", f"{name}={value}"]
        for name, path in self.secrets.items():
            options += ["--secret", f"id={name},src={path}"]
        return options + ([] if self.use_cache else ["--no-cache"])


class Engine(ABC):
    """Raises ImageError with the end of the log when a command fails."""

    # How the program shows an image, and where the description has its labels and its identifier.
    _inspect: ClassVar[tuple[str, ...]] = ("image", "inspect")
    _labels: ClassVar[str] = ".Config.Labels"
    _identifier: ClassVar[str] = ".Id"

    def __init__(self, log: Path) -> None:
        self.log = log

    @property
    @abstractmethod
    def program(self) -> str: ...

    def key(self, reference: str) -> str | None:
        """The key that an image was built with; None when the image is not here, "" when it has no
        key.
        """
        return self._show(reference, f'index {self._labels} "{KEY_LABEL}"')

    def identifier(self, reference: str) -> str:
        """What tells this image from every other."""
        shown = self._show(reference, self._identifier)
        if not shown:
            raise ImageError(
                f"{self.program} shows no identifier of {reference}; {tail(self.log)}",
                f"build {reference} again",
            )
        return shown

    @abstractmethod
    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        """Makes an image of one layer from a tar archive of a root file system."""

    @abstractmethod
    def build(self, build: Build) -> None: ...

    @abstractmethod
    def save(self, reference: str, archive: Path, name: str) -> None:
        """Writes a docker-archive in which the image has the reference `name`."""

    def pull(self, reference: str) -> bool:
        """Whether the image could be pulled."""
        return self._answer("pull", reference) is not None

    def tag(self, reference: str, names: Sequence[str]) -> None:
        """Adds references to an image."""
        self._run("tag", reference, *names)

    def remove(self, reference: str) -> None:
        """Removes a reference, and the image when it has no other. The log has the reason when the
        image is in use.
        """
        self._answer("rmi", reference)

    def _show(self, reference: str, field: str) -> str | None:
        return self._answer(*self._inspect, f"--format={{{{{field}}}}}", reference)

    def _answer(self, *arguments: str) -> str | None:
        """The output of a command, or None when it fails; the log then has the reason."""
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
            log.flush()
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})}, check=False,
            )  # fmt: skip
        if done.returncode != 0:
            raise ImageError(
                f"`{self.program} {arguments[0]}` failed (status {done.returncode}); "
                f"{tail(self.log)}",
                f"read {self.log}, correct the cause and run it again: finished images are kept",
            )
