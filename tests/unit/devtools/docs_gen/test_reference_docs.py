"""The generated parts of the reference are complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import metadata
from typing import Annotated

import pytest
import typer
import typer.main

from devtools.docs_gen import licence_docs, reference_docs
from hvdchart.cli import app


def test_page_has_each_command_with_each_option() -> None:
    page = reference_docs.command_page()
    names = [f"hvdchart {name}" for name in app.command().commands]  # type: ignore[attr-defined]
    assert all(re.search(rf"^## {name}\b", page, re.M) for name in names)
    assert "`--create-namespace` | Create the namespace if it does not exist. |" in page
    assert "return at once. (default: `--follow`) |" in page
    assert "Number of workers to measure on. (at least 1; default: `1`) |" in page
    assert "| Number of workers. (1 to 10000) |" in page
    assert "None" not in page


def without_help() -> None: ...


def with_an_option_without_help(way: Annotated[str, typer.Option()] = "") -> None:
    """Do something."""


@pytest.mark.parametrize(
    ("command", "what"), [(without_help, "the command"), (with_an_option_without_help, "--way")]
)
def test_what_has_no_help_is_named(
    monkeypatch: pytest.MonkeyPatch, command: Callable[..., None], what: str
) -> None:
    group = typer.Typer()
    group.callback()(without_help)
    group.command("new")(command)
    monkeypatch.setattr(app, "command", lambda: typer.main.get_command(group))
    with pytest.raises(SystemExit, match=f"^hvdchart new: no help for {what}$"):
        reference_docs.command_page()


def test_exit_codes_are_those_of_the_errors() -> None:
    codes = re.findall(r"^\| (\d+) \| (.*) \|$", reference_docs.exit_codes(), re.M)
    assert [int(code) for code, _ in codes] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 124]
    assert all(meaning for _, meaning in codes)


@pytest.mark.slow
def test_events_are_those_that_the_programs_create() -> None:
    emitted = reference_docs.emitted_events()
    assert {"Waiting", "Started", "Stalled", "HostLost", "HostsMissing", "Failed"} <= emitted
    assert emitted == reference_docs.described_events().keys()


def test_packages_of_the_wheel_have_their_needs() -> None:
    assert {"pyhelm3", "pyyaml", "pydantic"} <= set(licence_docs.needed(["pyhelm3"]))


def test_package_without_a_licence_is_named() -> None:
    package = metadata("pyyaml")
    for field in ("License", "License-Expression", "Classifier"):
        del package[field]  # type: ignore[attr-defined]
    with pytest.raises(SystemExit, match="PyYAML declares no licence"):
        licence_docs.declared(package)
