"""The command `python -m images`: parsing, printing and exit codes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from devtools.common.errors import DevtoolsError
from devtools.common.ui import show_error
from hvdchart.errors import HvdchartError
from images.builder import build as builder
from images.builder.catalogue import find_image, load_catalogue
from images.builder.requirements_lock import write_locks
from images.builder.sdist import write_sdist
from images.builder.separate_tests import build_and_test, describe_tests

app = typer.Typer(
    help="Build the container images of images/versions.yaml with Docker, Podman or Buildah.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
Name = Annotated[str, typer.Argument(help="an image of versions.yaml, e.g. cpu")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a parameter")
]


@app.command("list")
def list_images() -> None:
    """List the images: references, versions, what they are built from and how they are tested."""
    images = load_catalogue()
    for image in images.values():
        versions = ", ".join(f"{name} {version}" for name, version in image.versions.items())
        try:
            tests = describe_tests(image, images)
        except DevtoolsError:
            tests = f"not tested: python -m images test {image.name}"
        typer.echo(f"{image.name}: {image.reference}, from {image.parent or image.base}, {tests}")
        typer.echo(f"    {versions}")


@app.command()
def ref(name: Name, set_: Set = None) -> None:
    """Print an image's reference."""
    typer.echo(find_image(load_catalogue(_settings(set_), target=name), name).reference)


@app.command()
def build(
    name: Name,
    tag: Annotated[list[str] | None, typer.Option(help="a further reference for the image")] = None,
    set_: Set = None,
) -> None:
    """Build an image and its parents, unless they are here already; print its reference."""
    typer.echo(builder.build_image(name, tag or (), _settings(set_)).reference)


@app.command()
def wheel(name: Name, set_: Set = None) -> None:
    """Print the path of an image's Horovod wheel, which is compiled when needed. It works wherever
    its framework is installed.
    """
    typer.echo(builder.horovod_wheel(name, _settings(set_)))


@app.command()
def sdist(out: Annotated[Path, typer.Argument(help="an existing folder")]) -> None:
    """Write Horovod's source with all patches into a folder; print its path. pip builds it for the
    frameworks that are installed.
    """
    typer.echo(write_sdist(out))


@app.command()
def test(name: Name) -> None:
    """Build an image that is tested separately, run its tests, on a GPU where there is one, and
    write the results; print the path of their file.
    """
    typer.echo(build_and_test(name))


@app.command()
def lock(name: Name, set_: Set = None) -> None:
    """Write an image's hash-locked requirements from its .in files and versions.yaml."""
    for path in write_locks(find_image(load_catalogue(_settings(set_), target=name), name)):
        typer.echo(path)


def _settings(items: list[str] | None) -> dict[str, str]:
    settings = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise DevtoolsError(f"--set {item}", "write it as KEY=VALUE, e.g. tensorflow=2.20.0")
        settings[key] = value
    return settings


def main() -> None:
    # SIGTERM then stops child processes and removes temporary files, some of them secrets.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        app()
    except (HvdchartError, DevtoolsError) as error:
        show_error(error)
        raise SystemExit(1) from error
