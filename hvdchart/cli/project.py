"""The subcommands for a project's own files: init, templates and config."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.options import Format, check_format, print_document

_INIT_EPILOG = """\b
Examples:
  hvdchart init resnet
  hvdchart init resnet --template pytorch --image registry.example/team/torch:1.0

Exit codes: 0 written; 3 no run can have that name; 5 the folder exists, or cannot be written."""
_CONFIG_EPILOG = """\b
Examples:
  hvdchart config run.spec.yaml list
  hvdchart config run.spec.yaml get nodes.0.count
  hvdchart config run.spec.yaml set nodes.0.count=8 image.tag='"2.0"'
  hvdchart config run.spec.yaml unset volumes.data

Exit codes: 0 done; 3 the spec would be wrong, or there is no such key; 5 the file cannot be read or
written."""
_TEMPLATES_EPILOG = """\b
Examples:
  hvdchart templates list
  hvdchart templates list -o json

Exit codes: 0 printed."""
templates_app = typer.Typer(no_args_is_help=True, help="Templates of new projects.")


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.command(epilog=_INIT_EPILOG)(init)
    app.add_typer(templates_app, name="templates")
    app.command(epilog=_CONFIG_EPILOG)(config)


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the run, and of the new folder.")
    ],
    template: Annotated[
        str,
        typer.Option(metavar="NAME", help="Template, of those that `templates list` prints."),
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
    """Write a new project: a script that trains without changes, a spec and a README."""
    from hvdchart.project.templates import TEMPLATES, make_project

    if template not in TEMPLATES:
        raise typer.BadParameter(f"--template {template!r}: must be one of {', '.join(TEMPLATES)}")
    target = folder or Path(name)
    for file in make_project(target, name, TEMPLATES[template], image, has_dockerfile=dockerfile):
        sys.stdout.write(f"{file}\n")
    sys.stderr.write(f"next: cd {target} && hvdchart deploy run.spec.yaml --code .\n")


@templates_app.callback()
def _templates() -> None:
    """Templates of new projects."""


@templates_app.command("list", epilog=_TEMPLATES_EPILOG)
def list_templates(output: Format = "text") -> None:
    """Print the templates that `init` knows."""
    from hvdchart.project.templates import TEMPLATES

    check_format(output)
    if output != "text":
        print_document(
            [{"name": each.name, "about": each.about} for each in TEMPLATES.values()], output
        )
    else:
        width = max(map(len, TEMPLATES))
        for each in TEMPLATES.values():
            sys.stdout.write(f"{each.name:<{width}}  {each.about}\n")


def config(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec's file.")],
    action: Annotated[str, typer.Argument(metavar="ACTION", help="get, set, unset or list.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY...", help="Paths such as nodes.0.count; for set PATH=VALUE."),
    ] = None,
) -> None:
    """Read or change single keys of a spec's file; comments and order are kept."""
    import json

    from hvdchart.project import edit

    if action not in ("get", "set", "unset", "list"):
        raise typer.BadParameter(f"{action!r}: must be get, set, unset or list")
    if (action == "list") == bool(keys):
        raise typer.BadParameter(f"{action} takes {'no key' if keys else 'at least one key'}")
    if action == "set":
        edit.set_values(file, keys or ())
    elif action == "unset":
        edit.unset_values(file, keys or ())
    elif action == "list":
        for path, value in edit.items(file):
            sys.stdout.write(f"{path}={json.dumps(value, ensure_ascii=False)}\n")
    else:
        for key in keys or ():
            value = edit.get(file, key)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            sys.stdout.write(f"{text}\n")
