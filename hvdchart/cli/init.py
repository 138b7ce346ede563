"""The command `init`."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.terminal import note, show


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the run, and of the new folder.")
    ],
    template: Annotated[
        str, typer.Option(metavar="NAME", help="One of benchmark, keras, unet and pytorch.")
    ] = "keras",
    image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE",
            help="Image of the pods, with what the script needs (default: the template's).",
        ),
    ] = "",
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="New folder (default: NAME).")
    ] = None,
    dockerfile: Annotated[
        bool, typer.Option("--dockerfile", help="Write a Dockerfile and requirements.txt as well.")
    ] = False,
) -> None:
    """Write a new project: a script, a spec and a README.

    The script trains without changes in an image that has what it needs. The command prints what
    that is.

    Examples:
      hvdchart init resnet
      hvdchart init resnet --template pytorch --image registry.example/team/torch:1.0

    Exit codes: 0 written; 3 no run can have that name; 5 the folder exists, or cannot be written.
    """
    from hvdchart.project.templates import TEMPLATES, make_project

    if template not in TEMPLATES:
        known = "; ".join(f"{each.name} {each.about}" for each in TEMPLATES.values())
        raise typer.BadParameter(f"--template {template!r} is none of these: {known}")
    target = folder or Path(name)
    files = make_project(target, name, TEMPLATES[template], image, has_dockerfile=dockerfile)
    show(*map(str, files))
    note(f"train.py needs an image with {TEMPLATES[template].needs}")
    if not image:
        note("the template's image is in no public registry: push yours, and name it with --image")
    note(f"next: cd {target} && hvdchart deploy .")
