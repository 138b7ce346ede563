"""Build the image of a folder with Docker, Podman or Buildah; its tag is a hash of the content."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from hvdchart.errors import FileError, ImageError
from hvdchart.files import read_patterns
from hvdchart.image.engines import Report, runtime_options, stream_command

# Characters of a tag: enough to make the tags of a project's contents unique.
_TAG_CHARACTERS = 12
# The number of bytes to read from a file at a time.
_HASHED_PART_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """A folder with a Dockerfile, and the repository of its image."""

    folder: Path
    repository: str
    dockerfile: str = "Dockerfile"

    def reference(self) -> str:
        """Return the image's name; its tag is a hash of the folder's content. Raises FileError."""
        return f"{self.repository}:{self.digest()[:_TAG_CHARACTERS]}"

    def digest(self) -> str:
        """Return a hash of the folder's content. Raises FileError."""
        digest = hashlib.sha256()
        for name in context_files(self.folder, self.dockerfile):
            file = self.folder / name
            try:
                status = file.lstat()
                executable = status.st_mode & 0o111
                digest.update(f"{name}\0{executable}\0{status.st_size}\0".encode())
                for part in _content(file):
                    digest.update(part)
            except OSError as error:
                raise FileError(f"{file}: cannot read: {error.strerror}") from error
        return digest.hexdigest()


def context_files(folder: Path, dockerfile: str = "Dockerfile") -> list[str]:
    """Return the files of a folder that .dockerignore does not exclude, sorted.

    Raises FileError without the Dockerfile, and for an invalid pattern of .dockerignore.
    """
    if not (folder / dockerfile).is_file():
        raise FileError(f"{folder / dockerfile}: no such file; `hvdchart init` can write one")
    ignore = folder / ".dockerignore"
    lines = ignore.read_text("utf-8", "replace").splitlines() if ignore.is_file() else []
    patterns = [_anchor(line) for line in lines]
    spec = GitIgnoreSpec.from_lines(["/.git/"]) + read_patterns(ignore, patterns)
    # The builder does not follow links to folders, which may be loops.
    paths = spec.match_tree_files(folder, follow_links=False, negate=True)
    files = {str(name) for name in paths}
    # Docker sends the Dockerfile even if it is ignored.
    return sorted(files | {dockerfile})


def build_image(source: Source, engine: str, report: Report) -> str:
    """Build the image unless the engine has it; return its reference.

    `report` gets remarks and each line of the builder. Raises ImageError, with the last lines, when
    the builder fails, and FileError when a file of the folder cannot be read.
    """
    reference = source.reference()
    inspect = [engine, "inspect", "--type=image", reference]
    done = subprocess.run(inspect, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        report(f"{reference} is built already")
        return reference
    report(f"building {reference} with {engine}")
    began = time.monotonic()
    dockerfile = str(source.folder / source.dockerfile)
    options = ["--file", dockerfile, "--tag", reference, str(source.folder)]
    runtime = runtime_options()
    if engine == "buildah":
        isolation = ["--isolation", "oci", *runtime] if runtime else []
        command = [engine, "bud", *isolation, *options]
    elif engine == "podman":
        command = [engine, *runtime, "build", *options]
    else:
        command = [engine, "build", *options]
    code, lines = stream_command(command, report)
    if code:
        raise ImageError(
            f"{engine} cannot build {source.folder} (exit code {code}): {'; '.join(lines)}"
        )
    report(f"built {reference} in {time.monotonic() - began:.1f} s")
    return reference


def _anchor(line: str) -> str:
    """Convert a pattern of .dockerignore to .gitignore: the former start at the folder itself."""
    text = line.strip()
    pattern = text.removeprefix("!")
    if not pattern or pattern.startswith(("#", "/", "**")):
        return text
    mark = "!" if text.startswith("!") else ""
    return f"{mark}/{pattern.removeprefix('./')}"


def _content(file: Path) -> Iterator[bytes]:
    """Yield the content of a file, or the target of a link: the builder copies the link itself.

    The content comes in parts: a data set in the folder may be larger than memory.
    """
    if file.is_symlink():
        yield os.fsencode(file.readlink())
        return
    with file.open("rb") as opened:
        while part := opened.read(_HASHED_PART_BYTES):
            yield part
