"""The command `python -m devtools.release`, which the release workflow runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from devtools.common.errors import DevtoolsError
from devtools.common.ui import show_error
from devtools.release import artifacts, changelog

app = typer.Typer(
    help="Make the files of a release.", no_args_is_help=True, pretty_exceptions_enable=False
)
Repository = Annotated[str, typer.Option(help="the URL of the repository, for links")]


@app.command()
def build(
    out: Annotated[Path, typer.Argument(help="a new folder")],
    repository: Repository = "",
    registry: Annotated[str, typer.Option(help="where the images are pushed to")] = "",
) -> None:
    """Write the packaged chart, the wheel, the notes and the checksums."""
    for path in artifacts.build(out, repository, registry):
        typer.echo(path)


@app.command("version")
def write_version(
    version: Annotated[str, typer.Argument(help="such as 0.2.0")],
    day: Annotated[str, typer.Option(help="the day of the release")] = changelog.UNRELEASED,
) -> None:
    """Write a version into each file that names it, and its day into CHANGELOG.md."""
    changelog.write_version(version, day)


@app.command()
def check(
    tag: Annotated[str, typer.Argument(help="such as v0.2.0")],
    branch: Annotated[str, typer.Option(help="which has to have the commit")] = "",
) -> None:
    """Fail unless each place that names the version fits the tag, and no placeholder is left."""
    wrong = changelog.problems(tag)
    if branch and changelog.is_off(branch):
        wrong.append(f"{branch} does not have the commit of {tag}: release a commit of it")
    if wrong:
        raise DevtoolsError("; ".join(wrong), "correct it, and set the tag again")


def main() -> None:
    try:
        app()
    except DevtoolsError as error:
        show_error(error)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
