"""The generated files and the site of the documentation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer
import typer.main

from devtools.docs_gen import chart_docs, reference_docs
from devtools.docs_gen.build_site import ROOT, build
from devtools.docs_gen.generated import replace_section, write_or_compare
from hvdchart.cli import app


def test_section_between_marker_lines_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<start>\nold\n<end>\nafter\n")
    new_text = replace_section(page, "<start>", "new", "<end>")
    assert new_text == "before\n<start>\nnew\n<end>\nafter\n"
    page.write_text("<end>\n<start>\n")
    with pytest.raises(SystemExit, match=r"page\.md: the marker lines <start> and <end>"):
        replace_section(page, "<start>", "new", "<end>")


def test_check_reports_a_difference_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, other, missing = (tmp_path / name for name in ("same", "other", "missing"))
    same.write_text("text\n")
    other.write_text("old\n")
    texts = {same: "text\n", other: "new\n", missing: "new\n"}
    assert write_or_compare(texts, ["--check"]) == 1
    message = capsys.readouterr().err
    assert f"-old\n+new\n{other}: differs" in message
    assert f"{missing}: differs" in message
    assert f"{same}: differs" not in message
    assert (other.read_text(), missing.exists()) == ("old\n", False)
    assert write_or_compare(texts, []) == 0
    assert capsys.readouterr().out == f"wrote {other}\nwrote {missing}\n"
    assert write_or_compare(texts, ["--check"]) == 0


def test_value_without_a_description_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = chart_docs.load_source()
    properties = source["properties"]
    del properties["cleanup"]["description"]
    properties["staging"]["properties"]["retries"] = {"type": "integer"}
    properties["workerGroups"]["items"]["properties"]["rack"] = {"type": "string"}
    monkeypatch.setattr(chart_docs, "load_source", lambda: source)
    expected = r"without a description: workerGroups\[\]\.rack, staging\.retries, cleanup$"
    with pytest.raises(SystemExit, match=expected):
        chart_docs.generated_texts()


def test_value_that_does_not_declare_its_hash_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = chart_docs.load_source()
    properties = source["properties"]
    del properties["launch"]["properties"]["failOnNaN"]["hash"]
    properties["staging"]["properties"]["nodes"]["hash"] = "sometimes"
    monkeypatch.setattr(chart_docs, "load_source", lambda: source)
    with pytest.raises(SystemExit, match=r"`hash` must be .*: launch.failOnNaN, staging.nodes$"):
        chart_docs.generated_texts()


def without_help() -> None: ...


def with_an_option_without_help(way: Annotated[str, typer.Option()] = "") -> None:
    """Do something."""


@pytest.mark.parametrize(
    ("command", "what"), [(without_help, "the command"), (with_an_option_without_help, "--way")]
)
def test_command_or_option_without_help_is_named(
    monkeypatch: pytest.MonkeyPatch, command: Callable[..., None], what: str
) -> None:
    group = typer.Typer()
    group.callback()(without_help)
    group.command("new")(command)
    monkeypatch.setattr(app, "command", lambda: typer.main.get_command(group))
    with pytest.raises(SystemExit, match=f"^hvdchart new: no help for {what}$"):
        reference_docs.command_page()


@pytest.mark.slow
def test_site_has_every_page_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    """MkDocs checks links, anchors and the navigation."""
    site = tmp_path / "site"
    done = build(site)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    places = [path.parent if path.stem == "README" else path.with_suffix("") for path in pages]
    assert [place for place in places if not (site / place / "index.html").is_file()] == []
    assert "worker.number" in (site / "charts" / "horovod" / "index.html").read_text("utf-8")
    security = (site / "security" / "index.html").read_text("utf-8")
    assert 'href="../source/tests/chart/test_security.py.txt"' in security
    assert (site / "source" / "tests" / "chart" / "test_security.py.txt").is_file()
    page = (site / "index.html").read_text("utf-8")
    assert '<script src="http' not in page
    assert "fonts.googleapis.com" not in page
