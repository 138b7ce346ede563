"""The command `config`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hvdchart.cli.terminal import show, write_document

EPILOG = """\b
Examples:
  hvdchart config run.spec.yaml list
  hvdchart config run.spec.yaml get nodes.0.count
  hvdchart config run.spec.yaml set nodes.0.count=8 image.tag='"2.0"'
  hvdchart config run.spec.yaml unset volumes.data

Exit codes: 0 done; 3 the spec would be wrong, or there is no such key; 5 the file cannot be read or
written."""


def config(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec's file.")],
    action: Annotated[
        Literal["get", "set", "unset", "list"],
        typer.Argument(metavar="ACTION", help="get, set, unset or list."),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY...", help="Paths such as nodes.0.count; for set PATH=VALUE."),
    ] = None,
) -> None:
    """Read or change single keys of a spec's file; comments and order are kept."""
    import json

    from hvdchart.project import edit

    if (action == "list") == bool(keys):
        raise typer.BadParameter(f"{action} takes {'no key' if keys else 'at least one key'}")
    if action == "set":
        edit.set_values(file, keys or ())
    elif action == "unset":
        edit.unset_values(file, keys or ())
    elif action == "list":
        for path, value in edit.items(file):
            show(f"{path}={json.dumps(value, ensure_ascii=False)}")
    else:
        for key in keys or ():
            value = edit.get(file, key)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            write_document(f"{text}\n")
