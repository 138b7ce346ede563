"""The options of a script, for each command that takes a script."""

import dataclasses
import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hvdchart.cli.options import MOST_WORKERS
from hvdchart.project import SPEC_NAME

_IMAGE = "HVDCHART_IMAGE"
Named = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROJECT|SPEC...|SCRIPT",
        help=f"Folder with {SPEC_NAME}, or spec files, merged in order; - reads standard input; "
        "or a script, whose arguments follow after --.",
    ),
]


@dataclass(frozen=True)
class ScriptOptions:
    """The values of a script's options; None: the option was not given."""

    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_WORKERS, metavar="N", help="Number of workers (default: 2)."),
    ] = None
    gpus: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            metavar="N",
            help="GPUs of each worker, with a rank on each (default: none).",
        ),
    ] = None
    cpu: Annotated[
        str | None,
        typer.Option(
            metavar="CPUS",
            help="CPUs of each worker, such as 4 (default: 250m; with --gpus, no request).",
        ),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of each worker, such as 8Gi (default: 3Gi; with --gpus, no request).",
        ),
    ] = None
    image: Annotated[
        str | None,
        typer.Option(
            envvar=_IMAGE,
            metavar="IMAGE",
            help="Image of the pods (default: a public one of the framework that the script "
            "imports).",
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Variable of the ranks; can be repeated."),
    ] = None
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:/PATH]",
            help="A Secret, whose keys become variables, or files in /PATH; can be repeated.",
        ),
    ] = None
    volume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            help="A volume, such as data=pvc:CLAIM:/data:ro, output=pvc:CLAIM "
            "or cache=hostPath:/mnt/cache:/cache; can be repeated.",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the run, also to replace an active one (default: that of the script).",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given, by their names."""
        pairs = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {name: value for name, value in pairs if value not in (None, "", [])}

    def refuse(self) -> None:
        """Raise typer.BadParameter for such an option if there is no script."""
        from hvdchart.spec.run_options import OPTIONS

        given = self.given()
        if self.image == os.environ.get(_IMAGE):
            given.pop("image", None)
        for each in OPTIONS:
            if each.option.removeprefix("--") in given:
                keys = " and ".join(each.keys)
                raise typer.BadParameter(
                    f"{each.option} is an option of scripts: in a spec, --set sets {keys}"
                )
