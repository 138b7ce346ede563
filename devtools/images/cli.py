"""The command `python -m images`: parsing, printing and exit codes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from devtools.common.errors import DevtoolsError, ImageError
from devtools.common.ui import console, show_error
from devtools.images import build as builder
from devtools.images.catalogue import find, load_catalogue
from devtools.images.lock import write_locks
from devtools.images.proof import state
from devtools.images.sdist import write_sdist
from hvdchart.errors import HvdchartError

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
    table = Table("image", "reference, versions, base, tests", box=None)
    images = load_catalogue()
    for image in images.values():
        versions = ", ".join(f"{name} {version}" for name, version in image.versions.items())
        try:
            tests = state(image, images)
        except ImageError:
            tests = f"no proof: python -m images prove {image.name}"
        origin = f"from {image.parent or image.base}, {tests}"
        table.add_row(image.name, f"{image.reference}\n{versions}\n{origin}")
    console.__class__().print(table)


@app.command()
def ref(name: Name, set_: Set = None) -> None:
    """Print an image's reference."""
    typer.echo(find(load_catalogue(_settings(set_), target=name), name).reference)


@app.command()
def build(
    name: Name,
    tag: Annotated[list[str] | None, typer.Option(help="a further reference for the image")] = None,
    set_: Set = None,
) -> None:
    """Build an image and its parents, unless they are here already; print its reference."""
    typer.echo(builder.build(name, tag or (), _settings(set_)).reference)


@app.command()
def wheel(name: Name, set_: Set = None) -> None:
    """Print the path of an image's Horovod wheel, which is compiled when needed. It works wherever
    its framework is installed.
    """
    typer.echo(builder.wheel(name, _settings(set_)))


@app.command()
def sdist(out: Annotated[Path, typer.Argument(help="an existing folder")]) -> None:
    """Write Horovod's source with all patches into a folder; print its path. pip builds it for the
    frameworks that are installed.
    """
    typer.echo(write_sdist(out))


@app.command()
def prove(name: Name) -> None:
    """Build an image that is tested separately, run its tests in it, on a GPU where there is one,
    and write its proof; print the proof's path.
    """
    from devtools.images.proof import prove as write_proof

    typer.echo(write_proof(name))


@app.command()
def archive(name: Name) -> None:
    """Print the path of an image's docker-archive, which is built and written when needed."""
    typer.echo(builder.archive(name))


@app.command()
def sbom(name: Name, set_: Set = None) -> None:
    """Print the packages of an image, as a CycloneDX document."""
    from devtools.images.inspection import sbom as write_sbom

    typer.echo(write_sbom(builder.build(name, overrides=_settings(set_))), nl=False)


@app.command()
def audit(
    name: Name,
    advisories: Annotated[
        Path | None,
        typer.Option(help="a checkout of github.com/pypa/advisory-database, instead of pypi.org"),
    ] = None,
    set_: Set = None,
) -> None:
    """Show the available updates of an image's system packages and known vulnerabilities of its
    Python packages; exit with status 1 when there are any.
    """
    from devtools.images.audit import ask_pypi, search_checkout, updates
    from devtools.images.inspection import python_packages

    built = builder.build(name, overrides=_settings(set_))
    available = updates(built.reference, built.engine)
    for update in available:
        kind = "security update" if update.security else "update"
        typer.echo(f"{update.package} {update.installed}: {kind} to {update.candidate}")
    typer.echo(f"{len(available)} system packages have an update in the image's package sources")
    packages = python_packages(built)
    if advisories is None:
        status, text = ask_pypi(packages)
        typer.echo(text)
        raise typer.Exit(1 if available else status)
    known = search_checkout(advisories, packages)
    for item in known:
        fixed = ", ".join(item.fixed_in) or "no release yet"
        typer.echo(f"{item.package} {item.version}: {item.id}, fixed in {fixed}: {item.summary}")
    typer.echo(f"{len(known)} known vulnerabilities in {len(packages)} Python packages")
    raise typer.Exit(1 if known or available else 0)


@app.command()
def lock(name: Name, set_: Set = None) -> None:
    """Write an image's hash-locked requirements from its .in files and versions.yaml."""
    for path in write_locks(find(load_catalogue(_settings(set_), target=name), name)):
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
    # SIGTERM then stops child processes and removes temporary files, some of them secrets.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        app()
    except (HvdchartError, DevtoolsError) as error:
        show_error(error)
        raise SystemExit(1) from error
