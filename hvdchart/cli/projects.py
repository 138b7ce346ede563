"""The commands for the files of a project: `init`, `config`, `schema`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hvdchart.cli.terminal import note, show, write_document


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the run, and of the new folder.")
    ],
    template: Annotated[
        str, typer.Option(metavar="NAME", help="One of benchmark, keras, unet and pytorch.")
    ] = "keras",
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Image of the pods (default: the template's).")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="New folder (default: NAME).")
    ] = None,
    dockerfile: Annotated[
        bool, typer.Option("--dockerfile", help="Write a Dockerfile and requirements.txt as well.")
    ] = False,
) -> None:
    """Write a new project: a script that trains without changes, a spec and a README.

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
    if not image:
        note("the template's image is in no public registry: push yours, and name it with --image")
    note(f"next: cd {target} && hvdchart deploy .")


def config(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec's file.")],
    action: Annotated[
        Literal["get", "set", "unset"],
        typer.Argument(metavar="ACTION", help="get, set or unset."),
    ],
    keys: Annotated[
        list[str],
        typer.Argument(metavar="KEY...", help="Paths such as nodes.0.count; for set PATH=VALUE."),
    ],
) -> None:
    """Read or change single keys of a spec's file; comments and order are kept.

    Examples:
      hvdchart config run.spec.yaml get nodes.0.count
      hvdchart config run.spec.yaml set nodes.0.count=8 image.tag='"2.0"'
      hvdchart config run.spec.yaml unset volumes.data

    Exit codes: 0 done; 3 the spec would be wrong, or there is no such key; 5 the file cannot be
    read or written.
    """
    import json

    from hvdchart.project import edit

    if action == "set":
        edit.set_values(file, keys)
    elif action == "unset":
        edit.unset_values(file, keys)
    else:
        for key in keys:
            value = edit.get(file, key)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            write_document(f"{text}\n")


def schema() -> None:
    """Print the JSON schema of specs, for editors.

    Example:
      hvdchart schema > spec.schema.json

    Exit codes: 0 printed.
    """
    from hvdchart.spec.model import json_schema

    write_document(json_schema())
