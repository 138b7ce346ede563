"""Builds images, parents first. An image that was built from the same content is reused."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import DevtoolsError
from devtools.common.locks import exclusive_lock
from devtools.common.ui import note, step
from images.builder.base import base_of
from images.builder.build_engines import Build, Engine, choose_engine
from images.builder.catalogue import FILE, Image, find_image, load_catalogue
from images.builder.content import (
    build_arguments,
    compiled_in,
    environment_lines,
    image_files,
    image_key,
    is_portable,
    wheel_key,
)
from images.builder.mirror_settings import write_secrets
from images.builder.requirements_lock import stale_locks, write_missing_locks

# How many builds of an image are kept under further references, so that going back to an earlier
# state of the tree, or to another checkout, builds nothing. They share most layers; one takes up to
# the size of its environment.
KEPT_BUILDS = 4
# The machine that images can be built on, by Python's name.
_MACHINE = "x86_64"


@dataclass(frozen=True)
class BuiltImage:
    """An image that `engine` has. key: of what it was built from, see image_key."""

    reference: str
    key: str
    engine: Engine


def build_image(
    name: str,
    tags: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    versions: Path = FILE,
    *,
    allows_untested: bool = False,
) -> BuiltImage:
    """Build an image and its parents, unless they exist.

    tags: more references for the image. allows_untested: accept versions that are in no row of
    versions.yaml.

    Raises DevtoolsError, before anything is built, for an unknown name or version, a stale lock,
    and a machine that the image is not built for; and if a build fails.
    """
    images = load_catalogue(overrides, versions, target=name, allows_untested=allows_untested)
    image = find_image(images, name)
    chain = [image]
    while chain[0].parent is not None:
        chain.insert(0, images[chain[0].parent])
    refuse_machine(image)
    for member in chain:
        refuse_stale_locks(member)
        write_missing_locks(member)
        if compiled_in(member).get("suite") != member.suite:
            horovod_wheel(member.name, compiled_in(member), versions)
    logs = cache_dir() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    engine = choose_engine(logs / f"image-{name}.log")
    with _only_builder():
        base, base_key = base_of(chain[0], engine)
        for member in chain:
            base_key = _build_one(member, base, base_key, tags if member is image else (), engine)
            base = member.reference
    return BuiltImage(image.reference, base_key, engine)


def horovod_wheel(
    name: str, overrides: Mapping[str, str] | None = None, versions: Path = FILE
) -> Path:
    """Return the Horovod wheel of an image.

    If it does not exist, a build of the image compiles it. Raises DevtoolsError for an image whose
    wheel works nowhere else.
    """
    image = find_image(load_catalogue(overrides, versions, target=name), name)
    if not is_portable(image):
        raise DevtoolsError(
            f"{name}: its Horovod is linked with the image's own MPI and works nowhere else",
            "use an image whose `series` has mpi-at-run-time.patch",
        )
    folder = _make_wheel_folder(image)
    if not any(folder.iterdir()):
        build_image(name, overrides=compiled_in(image), versions=versions)
    (file,) = folder.iterdir()
    return file


def image_archive(name: str) -> Path:
    """Return a docker-archive of the image, written once for each content.

    In it, the image has the name that Kubernetes gives to an image without a registry.
    """
    built = build_image(name)
    repository = built.reference.partition(":")[0]
    folder = cache_dir() / "images"
    target = folder / f"{repository}-{built.key}.tar"
    if target.exists():
        return target
    with _only_builder():
        if target.exists():
            return target
        # Archives of earlier content, a gigabyte each, are not needed any more.
        for old in folder.glob(f"{repository}-{'[0-9a-f]' * len(built.key)}.tar"):
            old.unlink()
        partial = target.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with step(f"write the archive of {built.reference}"):
            built.engine.save(built.reference, partial, f"docker.io/library/{built.reference}")
        return partial.rename(target)


def _only_builder() -> AbstractContextManager[None]:
    """Return the lock of builds: a second build waits and then finds the work done."""
    return exclusive_lock(cache_dir() / "images" / ".lock", "building images")


def refuse_machine(image: Image) -> None:
    """Raise DevtoolsError on a machine that has no locked packages."""
    machine = platform.machine()
    if machine != _MACHINE:
        raise DevtoolsError(
            f"{image.name} is built for {_MACHINE}, and this machine is {machine}",
            "build it on such a machine: the locks have wheels only for it, and Horovod is "
            "compiled for its instructions",
        )


def refuse_stale_locks(image: Image) -> None:
    """Raise DevtoolsError if a lock in the tree does not pin what the .in file requires."""
    stale = stale_locks(image)
    if stale:
        raise DevtoolsError(
            f"{image.name}: {'; '.join(stale)}",
            f"python -m images lock {image.name} (with the same --set), then build again",
        )


def _build_one(image: Image, base: str, base_key: str, tags: Sequence[str], engine: Engine) -> str:
    key = image_key(image, base_key)
    references = [image.reference, *tags]
    wheels = _make_wheel_folder(image) if image.framework else None
    # Others may ask for a portable wheel: without it, the image is not complete.
    complete = wheels is None or not is_portable(image) or any(wheels.iterdir())
    if complete and all(engine.key(reference) == key for reference in references):
        note(f"{image.reference} is built already ({key})")
        return key
    kept_reference = kept_name(image.reference, key)
    if complete and engine.key(kept_reference) == key:
        engine.tag(kept_reference, references)
        note(f"{image.reference} was built before from the same content ({key})")
    else:
        _run_build(image, base, [*references, kept_reference], key, wheels, engine)
    for old in touch_and_evict(kept_reference):
        engine.remove(old)
    return key


def _run_build(
    image: Image,
    base: str,
    references: Sequence[str],
    key: str,
    wheels: Path | None,
    engine: Engine,
) -> None:
    arguments = {"BASE_IMAGE": base} | build_arguments(image)
    engine.log.write_text("")
    note(f"building {references[0]}; the output goes to {engine.log}")
    with (
        _context(image, image_files(image), wheels) as (context, secrets),
        step(f"build {references[0]}"),
    ):
        engine.build(
            Build(
                context,
                context / image.dockerfile.relative_to(image.context),
                references,
                arguments,
                secrets,
                key,
                wheels,
            )
        )


def _make_wheel_folder(image: Image) -> Path:
    """Return the folder of the image's wheel; make an empty one if there is none."""
    folder = cache_dir() / "wheels" / f"horovod-{wheel_key(image)}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _context(
    image: Image, files: Mapping[str, Path], wheels: Path | None
) -> Iterator[tuple[Path, dict[str, Path]]]:
    """Yield a build context with only the files of the build, and this machine's secrets."""
    with tempfile.TemporaryDirectory(prefix="hvd-image-") as name:
        context = Path(name) / "context"
        hidden = Path(name) / "secrets"
        hidden.mkdir(mode=0o700)
        for place, file in files.items():
            target = context / place
            target.parent.mkdir(parents=True, exist_ok=True)
            # copy2: with new times the engine would consider every file changed.
            shutil.copy2(file, target)
        if image.environment:
            with (context / image.dockerfile.relative_to(image.context)).open("a") as dockerfile:
                dockerfile.writelines(environment_lines(image))
        if wheels is not None:
            shutil.copytree(wheels, context / "wheelhouse")
        yield context, write_secrets(hidden)


def kept_name(reference: str, key: str) -> str:
    """Return the additional reference under which a build is kept."""
    return f"{reference.partition(':')[0]}:kept-{key}"


def touch_and_evict(name: str) -> list[str]:
    """Record the use of a build; return the image's oldest references beyond KEPT_BUILDS.

    The caller, who holds the lock of builds, removes them.
    """
    file = cache_dir() / "images" / "kept.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    used = file.read_text().splitlines() if file.exists() else []
    names = [other for other in used if other != name] + [name]
    repository = name.partition(":")[0]
    evicted = [other for other in names if other.partition(":")[0] == repository][:-KEPT_BUILDS]
    file.write_text("".join(f"{other}\n" for other in names if other not in evicted))
    return evicted
