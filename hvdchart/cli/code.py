"""The command `code`."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.options import Context, Name, Namespace, connect
from hvdchart.cli.terminal import show


def code(
    name: Name,
    folder: Annotated[
        Path, typer.Option("--write", "-w", metavar="FOLDER", help="New folder for the files.")
    ],
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write the code of a run, as the cluster has it, to a folder.

    Example:
      hvdchart code resnet50 -w code-of-resnet50

    Exit codes: 0 written; 5 the folder cannot be written, or has files; 7 there is no such run
    with code, or the cluster cannot be used.
    """
    from hvdchart.code.unpack import unpack_code
    from hvdchart.run.output import code_source

    cluster = connect(context, namespace)
    config_map = cluster.config_map(code_source(cluster.present_run(name)))
    show(*(str(folder / file) for file in unpack_code(config_map, folder)))
