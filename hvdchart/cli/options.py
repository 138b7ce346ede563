"""The arguments that name specs, for every subcommand that takes them, and the plan of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hvdchart.plan.model import Plan

Specs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="SPEC...", help="Specs; later ones are laid over the first."),
]
Files = Annotated[
    list[Path] | None, typer.Option("--file", "-f", help="As SPEC, after the SPECs; may repeat.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="path=value in the spec, last of all: nodes.0.count=8; may repeat."),
]


def planned(
    specs: list[Path] | None, files: list[Path] | None, settings: list[str] | None
) -> tuple[list[Path], Plan]:
    """The spec files in order, and the plan of what they and the settings come to."""
    from hvdchart.plan.planner import make_plan
    from hvdchart.spec.load import load_tree, read_spec
    from hvdchart.spec.overlays import overlaid, with_settings

    paths = [*(specs or ()), *(files or ())]
    if not paths:
        raise typer.BadParameter("no spec: name one, or several with -f")
    tree = overlaid([load_tree(path) for path in paths])
    return paths, make_plan(read_spec(with_settings(tree, settings or ())))
