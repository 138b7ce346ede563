"""Lists the files and arguments of an image's build, and computes keys that change with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from devtools.common.cache import content_key
from images.builder.catalogue import Image
from images.builder.requirements_lock import lock_file, tree_lock
from images.common import build_horovod

# The files of a context that a build uses. Others, such as READMEs and .in files, do not change it.
_USED = ("Dockerfile", "*.txt", "*.json", "*.py", "*.sh", "*.c", "*.debs", "series")


def image_files(image: Image) -> dict[str, Path]:
    """Return the files of an image's build by their path in the context, in a stable order."""
    files = {
        file
        for place in image.contents
        for pattern in _USED
        for file in place.glob(pattern)
        if file.is_file()
    }
    if image.framework:
        files |= {image.dockerfile, *build_horovod.patches(image.folder)}
    placed = {file: file for file in sorted(files)}
    for source in image.locks:
        placed[tree_lock(source)] = lock_file(image, source)
    return {place.relative_to(image.context).as_posix(): file for place, file in placed.items()}


def has_patch(image: Image, name: str) -> bool:
    """Return whether the image's Horovod has a patch of images/patches."""
    return name in {patch.name for patch in build_horovod.patches(image.folder)}


def image_key(image: Image, base_key: str) -> str:
    """Return a key of the base, and of every file, its path and every argument of the build."""
    files = image_files(image)
    arguments = [f"{name}={value}" for name, value in build_arguments(image).items()]
    return content_key(files.values(), *files, *arguments, *environment_lines(image), base_key)


def environment_lines(image: Image) -> list[str]:
    """Return the lines that an image's own variables add to its Dockerfile.

    TensorFlow aborts if some are empty, so that they cannot be an `ARG` of all images.
    """
    return [f"ENV {pair}\n" for pair in image.environment]


def content_of(image: Image, images: Mapping[str, Image]) -> str:
    """Return the key of an image's content in the tree, with its base by name.

    It is the same on every machine.
    """
    base = content_of(images[image.parent], images) if image.parent else image.base or ""
    return image_key(image, base)


def build_arguments(image: Image) -> dict[str, str]:
    """Return the ARGs of an image's Dockerfile, except BASE_IMAGE."""
    versions = image.versions.items()
    arguments = {_argument(f"{name}-version"): value for name, value in versions}
    if image.framework:
        arguments |= {_argument(name): value for name, value in image.options.items()} | {
            "IMAGE": image.name,
            "DRIVER_CAPABILITIES": "compute,utility" if "nccl" in image.features else "",
            # It was never tried on a GPU whether the framework can be imported before a fork.
            "MODULES": ""
            if "nccl" in image.features
            else f"{image.framework} horovod.{image.framework}",
            "PACKAGES": " ".join(image.packages),
            "FRAMEWORK": image.framework,
            "FEATURES": ",".join(image.features),
            "VERSIONS": " ".join(f"{name}={value}" for name, value in versions),
        }
    return arguments


def _argument(parameter: str) -> str:
    return parameter.replace("-", "_").upper()


def is_portable(image: Image) -> bool:
    """Return whether the image's wheel works in other environments that have its framework."""
    return bool(image.framework) and build_horovod.is_portable(build_horovod.patches(image.folder))


def compiled_in(image: Image) -> Mapping[str, str]:
    """Return the parameters with which the image's wheel is compiled.

    A portable wheel for TensorFlow works with every Python, and is compiled with the row of
    versions.yaml that has this TensorFlow and the release with the oldest C library. Any other
    wheel is compiled in the image itself.
    """
    if image.framework == "tensorflow" and is_portable(image):
        version = image.versions["tensorflow"]
        rows = [row for row in image.combinations if version in row["tensorflow"]]
        if rows:
            oldest = min(rows, key=lambda row: image.suites.index(row["suite"][0]))
            return {key: values[0] for key, values in oldest.items()} | {"tensorflow": version}
    return image.parameters


def wheel_key(image: Image) -> str:
    """Return a key of everything that the compiled Horovod depends on."""
    toolchain_files = [
        file
        for place in image.contents
        for pattern in ("toolchain.py", "toolkit.*")
        for file in place.glob(pattern)
    ]
    names = ["build_horovod.py", "horovod.txt"]
    names += ["wheel.txt", "notices.txt", "horovod.cdx.json"] if is_portable(image) else []
    files = [
        *(image.context / "common" / name for name in names),
        *sorted(toolchain_files),
        *sorted(image.folder.glob("series")),
        *build_horovod.patches(image.folder),
    ]
    place = compiled_in(image)
    versions = [f"{name}={place[name]}" for name in image.versions]
    chosen = [f"{name}={value}" for name, value in image.options.items()]
    settings = (*versions, *chosen, image.framework or "", *image.features, place["suite"])
    return content_key(files, *settings)
