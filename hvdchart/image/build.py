"""Builds the image of a folder with Docker, Podman or Buildah; its tag is a hash of the content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from hvdchart.errors import FileError, ImageError
from hvdchart.files import write_atomically
from hvdchart.image.engines import ENGINES, is_working, runtime_options, working_engines

# Characters of a tag: enough that no two contents of one project have the same.
_TAG_LENGTH = 12
# Lines of a failed build that an error shows.
_LAST_LINES = 10
Report = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """A folder with a Dockerfile, and the repository of its image."""

    folder: Path
    repository: str
    dockerfile: str = "Dockerfile"

    def reference(self) -> str:
        """The image's name with a tag that is a hash of the folder's content. Raises FileError."""
        digest = hashlib.sha256()
        for name in context_files(self.folder, self.dockerfile):
            file = self.folder / name
            try:
                mode, content = file.lstat().st_mode, _content(file)
            except OSError as error:
                raise FileError(f"{file}: cannot read: {error.strerror}") from error
            digest.update(f"{name}\0{mode & 0o111}\0{len(content)}\0".encode() + content)
        return f"{self.repository}:{digest.hexdigest()[:_TAG_LENGTH]}"


def context_files(folder: Path, dockerfile: str = "Dockerfile") -> list[str]:
    """The files of a folder that .dockerignore does not leave out, sorted. Raises FileError."""
    if not (folder / dockerfile).is_file():
        raise FileError(f"{folder / dockerfile}: no such file; `hvdchart init` can write one")
    ignore = folder / ".dockerignore"
    lines = ignore.read_text("utf-8", "replace").splitlines() if ignore.is_file() else []
    spec = GitIgnoreSpec.from_lines(["/.git/", *map(_anchor, lines)])
    found = {str(name) for name in spec.match_tree_files(folder, negate=True)}
    # Docker sends it, whether it is ignored or not.
    return sorted(found | {dockerfile})


def choose_engine(name: str | None) -> str:
    """The engine to build with: the one that is asked for, or the first that works."""
    if name is not None and name not in ENGINES:
        raise ImageError(f"{name!r} is no builder: use one of {', '.join(ENGINES)}")
    if name is not None and not is_working(name):
        raise ImageError(f"{name} does not work here: install or start it")
    engines = [name] if name else working_engines()
    if not engines:
        raise ImageError(
            f"none of {', '.join(ENGINES)} works here: start one, or run the script without an "
            "image of its own: deploy --code"
        )
    return engines[0]


def build(source: Source, engine: str, report: Report, output: Report | None = None) -> str:
    """Build the image unless the engine has it; returns its reference.

    `report` gets remarks, `output` each line of the builder. Raises ImageError with its last lines.
    """
    reference = source.reference()
    if _succeeds([engine, "inspect", "--type=image", reference]):
        report(f"{reference} is built already")
        return reference
    last = _durations().get(source.repository)
    about = "" if last is None else f", about {last:.0f} s as the last time"
    report(f"building {reference} with {engine}{about}")
    began = time.monotonic()
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    code = _stream(_build_command(source, engine, reference), lines, output)
    if code:
        ending = "; ".join(line.strip() for line in lines if line.strip())
        raise ImageError(f"{engine} cannot build {source.folder} (exit code {code}): {ending}")
    seconds = time.monotonic() - began
    _keep_duration(source.repository, seconds)
    report(f"built {reference} in {seconds:.1f} s")
    return reference


def push(reference: str, engine: str, output: Report | None = None) -> None:
    """Push an image to its registry, with the engine's own credentials."""
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    if _stream([engine, "push", reference], lines, output):
        ending = lines[-1].strip() if lines else "it printed no reason"
        host = reference.partition("/")[0]
        raise ImageError(
            f"cannot push {reference}: {ending}; log in with `{engine} login {host}`, or correct "
            "the repository"
        )


def save(reference: str, engine: str, file: Path) -> None:
    """Write an image to an archive that containerd, Docker and kind read."""
    if engine == "buildah":
        command = [engine, "push", reference, f"docker-archive:{file}:{reference}"]
    else:
        command = [engine, "save", "-o", str(file), reference]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"cannot save {reference}: {' '.join(done.stderr.split())}")


def load_into_kind(reference: str, engine: str, cluster: str) -> None:
    """Load an image into the nodes of a cluster of kind."""
    if shutil.which("kind") is None:
        raise ImageError("no program kind is on PATH: install it, or use --push or --save")
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "image.tar"
        save(reference, engine, archive)
        command = ["kind", "load", "image-archive", str(archive), "--name", cluster]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"cannot load {reference} into kind: {' '.join(done.stderr.split())}")


def changes(folder: Path) -> Iterator[None]:
    """Yield each time that files of a folder were changed, until interrupted."""
    from watchfiles import watch

    yield from (None for _ in watch(folder, raise_interrupt=True))


def _anchor(line: str) -> str:
    """A pattern of .dockerignore as .gitignore has it: the former's begin at the folder itself."""
    text = line.strip()
    mark, pattern = ("!", text[1:]) if text.startswith("!") else ("", text)
    if not pattern or pattern.startswith(("#", "/", "**")):
        return text
    return f"{mark}/{pattern.removeprefix('./')}"


def _content(file: Path) -> bytes:
    return str(file.readlink()).encode() if file.is_symlink() else file.read_bytes()


def _build_command(source: Source, engine: str, reference: str) -> list[str]:
    dockerfile = str(source.folder / source.dockerfile)
    options = ["--file", dockerfile, "--tag", reference, str(source.folder)]
    runtime = runtime_options()
    if engine == "buildah":
        isolation = ["--isolation", "oci", *runtime] if runtime else []
        return [engine, "bud", *isolation, *options]
    return [engine, *(runtime if engine == "podman" else []), "build", *options]


def _stream(command: Sequence[str], lines: deque[str], output: Report | None) -> int:
    """Run a builder; its exit code. Its lines go to `output`, and the last ones to `lines`."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            lines.append(line)
            if output:
                output(line.rstrip("\n"))
    return process.returncode


def _succeeds(command: Sequence[str]) -> bool:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "hvdchart" / "builds.json"


def _durations() -> dict[str, float]:
    """How many seconds the last build of each repository took."""
    try:
        found = json.loads(_cache().read_text())
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep_duration(repository: str, seconds: float) -> None:
    try:
        _cache().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_cache(), json.dumps({**_durations(), repository: round(seconds, 1)}))
    except (OSError, FileError):
        # It only serves the next estimate.
        return
