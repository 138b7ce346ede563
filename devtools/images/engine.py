"""What is asked of the program that builds and keeps images, whichever it is."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.common.errors import ImageError
from devtools.common.ui import tail

KEY_LABEL = "dev.hvdchart.images.key"


@dataclass(frozen=True)
class Build:
    """One build. `arguments` are ARGs, `secrets` files by id; `wheels` is a folder that takes
    the compiled wheel.
    """

    context: Path
    dockerfile: Path
    references: Sequence[str]
    arguments: Mapping[str, str]
    secrets: Mapping[str, Path]
    key: str
    wheels: Path | None = None
    anew: bool = False  # take nothing from layers that an earlier build left

    def options(self) -> list[str]:
        """What all three engines understand alike."""
        options = ["--file", str(self.dockerfile), "--label", f"{KEY_LABEL}={self.key}"]
        for name, value in self.arguments.items():
            options += ["--build-arg", f"{name}={value}"]
        for name, path in self.secrets.items():
            options += ["--secret", f"id={name},src={path}"]
        return options + (["--no-cache"] if self.anew else [])


class Engine(ABC):
    """Raises ImageError with the end of the log when a command fails."""

    def __init__(self, log: Path) -> None:
        self.log = log

    @property
    @abstractmethod
    def program(self) -> str: ...

    @abstractmethod
    def key(self, reference: str) -> str | None:
        """The key that an image was built with; None when it is not here, "" when it was not
        built by us.
        """

    @abstractmethod
    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        """Makes an image of one layer from a tar archive of a root file system."""

    @abstractmethod
    def build(self, build: Build) -> None: ...

    @abstractmethod
    def save(self, reference: str, archive: Path, name: str) -> None:
        """Writes a docker-archive of the image, in which it is called `name`."""

    def pull(self, reference: str) -> bool:
        """Whether a registry gave the image."""
        return self._answer("pull", reference) is not None

    def tag(self, reference: str, names: Sequence[str]) -> None:
        """Gives an image that is here further names."""
        self._run("tag", reference, *names)

    def remove(self, reference: str) -> None:
        """Takes a name away, and frees the image's space when it was the last one. One in use
        stays; the log says so.
        """
        self._answer("rmi", reference)

    def _answer(self, *arguments: str) -> str | None:
        """What the engine says, or None when it refuses; the reason goes to the log."""
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
                f"read {self.log}, mend the cause and run it again: what was built so far is kept",
            )
