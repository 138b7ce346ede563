"""The generated files and the site of the documentation."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import CHART, DOCS, ROOT
from devtools.docs_gen import chart_docs, dashboard, requirements
from devtools.docs_gen.build_site import build_site
from devtools.docs_gen.dashboard import Panel
from devtools.docs_gen.generated import write_or_compare


@dataclass(frozen=True)
class Generated:
    """A generated file that is right, one with another text, and one that is missing."""

    same: Path
    other: Path
    missing: Path

    @property
    def texts(self) -> dict[Path, str]:
        """What is to be in the files."""
        return {self.same: "text\n", self.other: "new\n", self.missing: "new\n"}


@pytest.fixture
def generated(tmp_path: Path) -> Generated:
    files = Generated(*(tmp_path / name for name in ("same", "other", "missing")))
    files.same.write_text("text\n")
    files.other.write_text("old\n")
    return files


@pytest.fixture
def properties(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The properties of the chart's values, which a test may change."""
    source = chart_docs.load_source()
    monkeypatch.setattr(chart_docs, "load_source", lambda: source)
    changeable: dict[str, Any] = source["properties"]
    return changeable


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. MkDocs checks links, anchors and the navigation."""
    folder = tmp_path_factory.mktemp("built") / "site"
    done = build_site(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_check_reports_what_differs_and_writes_nothing(
    generated: Generated, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_or_compare(generated.texts, ["--check"]) == 1
    message = capsys.readouterr().err
    assert f"-old\n+new\n{generated.other}: differs" in message
    assert f"{generated.missing}: differs" in message
    assert f"{generated.same}: differs" not in message
    assert generated.other.read_text() == "old\n"
    assert not generated.missing.exists()


def test_generating_writes_what_differs_and_names_it(
    generated: Generated, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_or_compare(generated.texts, []) == 0
    assert capsys.readouterr().out == f"wrote {generated.other}\nwrote {generated.missing}\n"
    assert write_or_compare(generated.texts, ["--check"]) == 0


def test_value_without_a_hash_is_named(properties: dict[str, Any]) -> None:
    del properties["launch"]["properties"]["failOnNaN"]["hash"]
    properties["staging"]["properties"]["nodes"]["hash"] = "sometimes"
    with pytest.raises(SystemExit, match=r"`hash` .*: launch\.failOnNaN, staging\.nodes$"):
        chart_docs.generated_texts()


def test_value_without_a_description_is_named(properties: dict[str, Any]) -> None:
    del properties["cleanup"]["description"]
    properties["staging"]["properties"]["retries"] = {"type": "integer"}
    properties["workerGroups"]["items"]["properties"]["rack"] = {"type": "string"}
    del properties["horovod"]["properties"]["timeline"]["description"]
    keys = r"workerGroups\[\]\.rack, horovod\.timeline, staging\.retries, cleanup"
    with pytest.raises(SystemExit, match=rf"description: {keys}$"):
        chart_docs.generated_texts()


def test_value_that_describes_another_default_than_the_chart_takes_is_named(
    properties: dict[str, Any],
) -> None:
    properties["launch"]["properties"]["lostAfterSeconds"]["effective"] = 15
    properties["launch"]["properties"]["shrinkAfterSeconds"]["effective"] = 60
    expected = r"default .*: launch\.lostAfterSeconds, launch\.shrinkAfterSeconds$"
    with pytest.raises(SystemExit, match=expected):
        chart_docs.generated_texts()


def test_values_have_the_number_that_a_description_names(properties: dict[str, Any]) -> None:
    worker = properties["worker"]["properties"]
    grace_period = worker["terminationGracePeriodSeconds"]
    assert str(grace_period["effective"]) in grace_period["description"]
    assert "{labels}" in properties["metrics"]["properties"]["rules"]["description"]


def test_each_dependency_of_the_library_is_locked() -> None:
    """The lock is compiled from the list that is written from pyproject.toml."""
    (listed,) = requirements.generated_texts().values()
    names = re.findall(r"^([\w.-]+)[<>=]", listed, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert len(names) == len(project["dependencies"]) > 0
    lock = (ROOT / "requirements" / "dev.txt").read_text("utf-8")
    locked = set(re.findall(r"^([\w-]+)==", lock, re.M))
    assert {name.replace(".", "-") for name in names} <= locked


def test_each_clause_of_a_long_description_has_a_line(properties: dict[str, Any]) -> None:
    clauses = ["never", "x" * 80, "y" * 80]
    properties["cleanup"]["description"] = "; ".join(clauses)
    values = chart_docs.generated_texts()[CHART / "values.yaml"]
    lines = "".join(f"# {clause}\n" for clause in clauses)
    assert f"\n{lines}cleanup: OnSuccess\n" in values


def test_a_query_of_the_dashboard_names_metrics_that_pods_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard, "ROWS", ((Panel("Old", {"": "hvdchart_old{}"}),),))
    with pytest.raises(SystemExit, match="hvdchart_old"):
        dashboard.generated_texts()


def searched(site: Path) -> dict[str, str]:
    """What the search of the site knows: the place of each section, and its title."""
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    return {entry["location"]: entry["title"] for entry in index["docs"]}


@pytest.mark.slow
class TestSite:
    def test_every_page_is_there(self, site: Path) -> None:
        pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
        places = [path.parent if path.stem == "README" else path.with_suffix("") for path in pages]
        assert [place for place in places if not (site / place / "index.html").is_file()] == []

    def test_page_of_the_chart_is_there(self, site: Path) -> None:
        page = (site / "charts" / "horovod" / "index.html").read_text("utf-8")
        assert "worker.number" in page

    def test_link_to_a_source_leads_to_a_copy_of_it(self, site: Path) -> None:
        page = (site / "threat-model" / "index.html").read_text("utf-8")
        assert 'href="../source/tests/chart/test_security.py.txt"' in page
        assert (site / "source" / "tests" / "chart" / "test_security.py.txt").is_file()

    @pytest.mark.parametrize("page", ["adr/", "runtime/", "images/cpu/", "CHANGELOG/"])
    def test_page_that_helps_no_user_is_not_searched(self, site: Path, page: str) -> None:
        assert (site / page).is_dir()
        assert [place for place in searched(site) if place.startswith(page)] == []

    @pytest.mark.parametrize("elsewhere", ['<script src="http', "fonts.googleapis.com"])
    def test_page_needs_nothing_from_elsewhere(self, site: Path, elsewhere: str) -> None:
        assert elsewhere not in (site / "index.html").read_text("utf-8")
