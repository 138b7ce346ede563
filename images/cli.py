"""The command `python -m images`: parsing, printing and exit codes."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer
from rich.table import Table

from images import build as builder
from images.catalogue import find, load_catalogue
from images.errors import ImageError
from images.lock import write_locks
from localkube.errors import LocalkubeError
from localkube.ui import console

app = typer.Typer(
    help="Build the container images of images/versions.yaml with Docker, Podman or Buildah.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
Name = Annotated[str, typer.Argument(help="an image of versions.yaml, e.g. cpu")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="another version")
]


@app.command("list")
def list_images() -> None:
    """The images, what they are called and which versions they hold."""
    table = Table("image", "reference", "from", "versions", box=None)
    for image in load_catalogue().values():
        versions = ", ".join(f"{name} {version}" for name, version in image.versions.items())
        table.add_row(image.name, image.reference, image.parent or image.base, versions)
    console.__class__().print(table)


@app.command()
def ref(name: Name) -> None:
    """Print an image's reference."""
    typer.echo(find(load_catalogue(), name).reference)


@app.command()
def build(
    name: Name,
    tag: Annotated[list[str] | None, typer.Option(help="a further name for the image")] = None,
    set_: Set = None,
) -> None:
    """Build an image, and what it is built from, unless they are there already; print its
    reference.
    """
    typer.echo(builder.build(name, tag or (), _settings(set_)).reference)


@app.command()
def archive(name: Name) -> None:
    """Print the path of a docker-archive of an image; builds and writes it when it is not there."""
    typer.echo(builder.archive(name))


@app.command()
def lock(name: Name, set_: Set = None) -> None:
    """Write an image's hash-locked requirements anew from its .in files and versions.yaml."""
    for path in write_locks(find(load_catalogue(_settings(set_)), name)):
        typer.echo(path)


def _settings(items: list[str] | None) -> dict[str, str]:
    settings = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise ImageError(f"--set {item}", "write it as KEY=VALUE, e.g. tensorflow=2.14.1")
        settings[key] = value
    return settings


def main() -> None:
    # Asked to end, it ends what it runs and takes its temporary files, secrets among them, along.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        app()
    except (ImageError, LocalkubeError) as error:
        console.print(f"[red]images:[/] {error}", soft_wrap=True)
        raise SystemExit(1) from error
