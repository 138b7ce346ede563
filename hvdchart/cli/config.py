"""The command `config`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hvdchart.cli.terminal import write_document


def config(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec's file.")],
    action: Annotated[
        Literal["get", "set", "unset"], typer.Argument(metavar="ACTION", help="get, set or unset.")
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
