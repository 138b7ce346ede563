"""The command `code`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.options import Context, Name, Namespace
from hvdchart.errors import ClusterError

EPILOG = """\b
Example:
  hvdchart code resnet50 -w code-of-resnet50

Exit codes: 0 written; 5 the folder cannot be written, or has files; 7 there is no such run with
code, or the cluster cannot be used."""


def code(
    name: Name,
    folder: Annotated[
        Path, typer.Option("--write", "-w", metavar="FOLDER", help="New folder for the files.")
    ],
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write the code of a run, as the cluster has it, to a folder."""
    from hvdchart.code.unpack import unpack_code
    from hvdchart.run.cluster import Cluster

    cluster = Cluster.connect(context, namespace)
    config_map = cluster.code(name)
    if config_map is None:
        raise ClusterError(
            f"no run {name} with code in namespace {cluster.namespace}: its image has the code, or "
            "there is no such run"
        )
    for file in unpack_code(config_map, folder):
        sys.stdout.write(f"{folder / file}\n")
