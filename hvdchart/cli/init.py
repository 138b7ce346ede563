"""The command `init`."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.terminal import print_lines, print_notes


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the run, and of the new folder.")
    ],
    template: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="torchrun, or for Horovod: keras, horovod-torch, unet, benchmark.",
        ),
    ] = "torchrun",
    image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE",
            help="Image of the pods, with what the script needs (default: the template's).",
        ),
    ] = "",
    dockerfile: Annotated[
        bool, typer.Option("--dockerfile", help="Write a Dockerfile and requirements.txt as well.")
    ] = False,
) -> None:
    """Write a new project: a script, a spec and a README.

    The script trains without changes. That of the template torchrun needs a public image with
    PyTorch; those for Horovod need an image of this repository, which you build and push first.

    Examples:
      hvdchart init resnet
      hvdchart init resnet --template keras --image registry.example/team/horovod-examples:1.0

    Exit codes: 0 written; 3 no run can have that name; 5 the folder exists, or cannot be written.
    """
    from hvdchart.project.templates import TEMPLATES, image_of, make_project
    from hvdchart.spec import SPEC_NAME
    from hvdchart.spec.fields import suggest_nearest

    chosen = TEMPLATES.get(template)
    if chosen is None:
        listed = "\n".join(f"  {project.name}: {project.about}" for project in TEMPLATES.values())
        near = suggest_nearest(template, TEMPLATES)
        raise typer.BadParameter(
            f"--template {template}: there is none{near}; use one of\n{listed}"
        )
    target = Path(name)
    files = make_project(target, name, chosen, image, has_dockerfile=dockerfile)
    print_lines(*map(str, files))
    print_notes(
        f"train.py needs an image with {chosen.needs}; the spec names {image or image_of(chosen)}"
    )
    if chosen.image and not image:
        build = chosen.image.removeprefix("horovod-")
        print_notes(
            "next: no public registry has this image; in a checkout of hvdchart, "
            f"`python -m images build {build}` builds it; push it, and write its name into "
            f"{target / SPEC_NAME}"
        )
    else:
        print_notes(f"next: cd {target} && hvdchart deploy .")
