"""The subcommand `build`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.terminal import say
from hvdchart.errors import HvdchartError

if TYPE_CHECKING:
    from collections.abc import Callable

_EPILOG = """\b
Examples:
  hvdchart build . --image registry.example/team/resnet --push --spec run.spec.yaml
  hvdchart build . --image resnet --kind kind --watch

Exit codes: 0 built; 5 there is no Dockerfile; 9 no builder works, or it failed; 130 interrupted."""


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(epilog=_EPILOG)(build)


def build(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with a Dockerfile.")],
    image: Annotated[
        str, typer.Option("--image", metavar="REPOSITORY", help="Name of the image, without a tag.")
    ],
    dockerfile: Annotated[
        str, typer.Option(metavar="FILE", help="The Dockerfile, relative to FOLDER.")
    ] = "Dockerfile",
    builder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="docker, podman or buildah (default: the first found)."),
    ] = None,
    push: Annotated[bool, typer.Option("--push", help="Push the image to its registry.")] = False,
    kind: Annotated[
        str | None, typer.Option(metavar="CLUSTER", help="Load the image into this kind cluster.")
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the image to an archive."),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(metavar="SPEC", help="Name the image in this spec; its comments stay."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Build again at each change, until interrupted.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what the builder prints.")
    ] = False,
) -> None:
    """Build an image, whose tag is a hash of the folder's content, and print its name.

    An image that is there already is not built again.
    """
    from hvdchart.image import build as building

    source = building.Source(folder, image, dockerfile)
    engine = building.choose_engine(builder)

    def once() -> None:
        reference = building.build(source, engine, say, _print_error if verbose else None)
        if push:
            building.push(reference, engine, _print_error if verbose else None)
        if kind is not None:
            building.load_into_kind(reference, engine, kind)
        if archive is not None:
            building.save(reference, engine, archive)
        if spec is not None:
            _write_spec(spec, reference)
        sys.stdout.write(f"{reference}\n")
        sys.stdout.flush()

    if not watch:
        once()
        return
    try:
        _try(once)
        for _ in building.changes(folder):
            _try(once)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _try(once: "Callable[[], None]") -> None:
    """A build that fails is not the end of a watch: the next save may mend it."""
    try:
        once()
    except HvdchartError as error:
        say(f"{error}; waiting for the next change")


def _print_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _write_spec(spec: Path, reference: str) -> None:
    import json

    from hvdchart.project.edit import set_values

    repository, _, tag = reference.rpartition(":")
    pairs = {"image.repository": repository, "image.tag": tag}
    set_values(spec, [f"{path}={json.dumps(value)}" for path, value in pairs.items()])
