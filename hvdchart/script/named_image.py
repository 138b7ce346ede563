"""Find the frameworks of a program that a public image named by the user lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hvdchart.script.default_images import DefaultImage, choose_default_image, parse_requirements
from hvdchart.text import split_image

_IMAGE_FRAMEWORKS = ("horovod", "torch", "jax", "tensorflow", "keras")
# Packages that contain a framework or depend on it.
_BRINGING_PACKAGES = {
    "torch": {"torchvision", "torchaudio", "torchmetrics"},
    "tensorflow": {"tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm"},
}
# Registry names that images without a registry belong to.
_DOCKER_HUB = ("docker.io/", "index.docker.io/")


def warn_of_lacked_frameworks(
    repository: str, modules: Collection[str], requirements: str = "", *, has_gpus: bool = False
) -> Iterator[str]:
    """Warn of each framework among the modules that the image of a repository lacks.

    Images that are not in images.yaml give no warning, nor do packages in the text of a
    requirements.txt.
    """
    images = {
        name: choose_default_image([("", name)], has_gpus=has_gpus) for name in _IMAGE_FRAMEWORKS
    }
    named = _plain(repository)
    # The last image is that of scripts without a framework.
    public = [*images.values(), choose_default_image((), has_gpus=has_gpus)]
    same = [image for image in public if _repository(image) == named]
    if not same:
        return
    has = frozenset().union(*(image.has for image in same))
    listed = parse_requirements(requirements)
    for name, image in images.items():
        is_brought = not listed.isdisjoint({name, *_BRINGING_PACKAGES.get(name, ())})
        if name in modules and name not in has and image not in same and not is_brought:
            yield (
                f"the script imports {name}, and no image {repository} is known to have it: "
                f"{image.reference} has it"
            )


def _repository(image: DefaultImage) -> str:
    return _plain(split_image(image.reference)["repository"])


def _plain(repository: str) -> str:
    """Return the name of a repository, without that of Docker's registry."""
    for prefix in _DOCKER_HUB:
        repository = repository.removeprefix(prefix)
    return repository.removeprefix("library/")
