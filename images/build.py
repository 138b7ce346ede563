"""Builds images: each once for what goes into it, its parents first."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from images.base import base_of
from images.catalogue import Image, find, load_catalogue
from images.common import build_horovod
from images.engine import Build, Engine
from images.engines import choose_engine
from images.errors import ImageError
from images.lock import stale_locks
from images.machine import write_secrets
from localkube.cache import cache_dir, content_key
from localkube.ui import note, step

# Of a context: what a Dockerfile may take. The rest (notes, .in files) does not make another image.
_TAKEN = ("Dockerfile", "*.txt", "*.py", "*.sh", "series")


@dataclass(frozen=True)
class BuiltImage:
    reference: str
    key: str
    engine: Engine


def build(
    name: str, tags: Sequence[str] = (), overrides: Mapping[str, str] | None = None
) -> BuiltImage:
    """Builds an image and what it is built from, unless that is there already; `tags` are further
    names for it.

    Raises ImageError, before anything is built, when the name, a version or a lock is not what it
    should be.
    """
    images = load_catalogue(overrides)
    image = find(images, name)
    chain = [image]
    while chain[0].parent is not None:
        chain.insert(0, images[chain[0].parent])
    for member in chain:
        refuse_stale_locks(member)
    logs = cache_dir() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    engine = choose_engine(logs / "images.log")
    with _only_builder():
        base, base_key = base_of(chain[0], engine)
        for member in chain:
            base_key = _build_one(member, base, base_key, tags if member is image else (), engine)
            base = member.reference
    return BuiltImage(image.reference, base_key, engine)


def archive(name: str) -> Path:
    """A docker-archive of the image, for loading elsewhere; made once for each content of it.

    In it the image has the name that Kubernetes gives to one without a registry.
    """
    built = build(name)
    repository = built.reference.partition(":")[0]
    folder = cache_dir() / "images"
    target = folder / f"{repository}-{built.key}.tar"
    if target.exists():
        return target
    with _only_builder():
        if target.exists():
            return target
        # One of an earlier content is a gigabyte that nobody asks for again.
        for old in folder.glob(f"{repository}-*.tar"):
            old.unlink()
        partial = target.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with step(f"write the archive of {built.reference}"):
            built.engine.save(built.reference, partial, f"docker.io/library/{built.reference}")
        return partial.rename(target)


@contextmanager
def _only_builder() -> Iterator[None]:
    """Two builds at once would do the same work twice; the second waits and finds it done."""
    file = cache_dir() / "images" / ".lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("another build of images is going on here: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def refuse_stale_locks(image: Image) -> None:
    stale = stale_locks(image)
    if stale:
        raise ImageError(
            f"{image.name}: {'; '.join(stale)}",
            f"python -m images lock {image.name} (with the same --set), then build again",
        )


def image_files(image: Image) -> list[Path]:
    """The files of the context that an image is built from, in a stable order."""
    found = {
        file
        for place in image.contents
        for pattern in _TAKEN
        for file in place.glob(pattern)
        if file.is_file()
    }
    if image.framework:
        found |= set(build_horovod.patches(image.folder))
    return sorted(found)


def image_key(image: Image, base_key: str) -> str:
    """Changes with every file that is built from, its path, an argument or the base."""
    files = image_files(image)
    names = [file.relative_to(image.context).as_posix() for file in files]
    arguments = [f"{name}={value}" for name, value in build_arguments(image).items()]
    return content_key(files, *names, *arguments, base_key)


def _build_one(image: Image, base: str, base_key: str, tags: Sequence[str], engine: Engine) -> str:
    files = image_files(image)
    key = image_key(image, base_key)
    references = [image.reference, *tags]
    if all(engine.key(reference) == key for reference in references):
        note(f"{image.reference} is built already ({key})")
        return key
    wheels = _wheel_folder(image) if image.framework else None
    arguments = {"BASE_IMAGE": base} | build_arguments(image)
    replaced = engine.identity(image.reference)
    engine.log.write_text("")
    note(f"building {image.reference}; the output goes to {engine.log}")
    with _context(image, files, wheels) as (context, secrets), step(f"build {image.reference}"):
        engine.build(
            Build(context, context / image.dockerfile.relative_to(image.context), references,
                  arguments, secrets, key, wheels)
        )  # fmt: skip
    if replaced and replaced != engine.identity(image.reference):
        engine.remove(replaced)
    return key


def build_arguments(image: Image) -> dict[str, str]:
    """The ARGs of an image's Dockerfile, beside BASE_IMAGE."""
    versions = image.versions.items()
    arguments = {f"{name.replace('-', '_').upper()}_VERSION": value for name, value in versions}
    if image.framework:
        arguments |= {
            "IMAGE": image.name,
            "FRAMEWORK": image.framework,
            "FEATURES": ",".join(image.features),
            "VERSIONS": " ".join(f"{name}={value}" for name, value in versions),
        }
    return arguments


def wheel_key(image: Image) -> str:
    """Changes with what the compiled Horovod depends on, and with nothing else of the image."""
    own = [image.folder / name for name in ("series", "toolchain.py")]
    files = [
        image.context / "common" / "build_horovod.py",
        image.context / "common" / "horovod.txt",
        *(file for file in own if file.exists()),
        *build_horovod.patches(image.folder),
    ]
    versions = [f"{name}={version}" for name, version in image.versions.items()]
    return content_key(files, *versions, image.framework or "", *image.features, image.suite or "")


def _wheel_folder(image: Image) -> Path:
    """Where the image's wheel is kept, or will be."""
    folder = cache_dir() / "wheels" / f"horovod-{wheel_key(image)}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _context(
    image: Image, files: Sequence[Path], wheels: Path | None
) -> Iterator[tuple[Path, dict[str, Path]]]:
    """A folder with what goes into the build and nothing else, and this machine's secrets beside
    it.
    """
    with tempfile.TemporaryDirectory(prefix="hvd-image-") as name:
        context, hidden = Path(name) / "context", Path(name) / "secrets"
        hidden.mkdir(mode=0o700)
        for file in files:
            target = context / file.relative_to(image.context)
            target.parent.mkdir(parents=True, exist_ok=True)
            # Times are kept: without them the engine would see a change in every file.
            shutil.copy2(file, target)
        if wheels is not None:
            shutil.copytree(wheels, context / "wheelhouse")
        yield context, write_secrets(hidden)
