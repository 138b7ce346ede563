"""The generated files and the site of the documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devtools.docs_gen import chart_docs
from devtools.docs_gen.build_site import ROOT, build
from devtools.docs_gen.generated import write_or_compare


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


def test_value_without_a_description_or_a_hash_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = chart_docs.load_source()
    monkeypatch.setattr(chart_docs, "load_source", lambda: source)
    properties = source["properties"]
    del properties["launch"]["properties"]["failOnNaN"]["hash"]
    properties["staging"]["properties"]["nodes"]["hash"] = "sometimes"
    with pytest.raises(SystemExit, match=r"`hash` must be .*: launch.failOnNaN, staging.nodes$"):
        chart_docs.generated_texts()
    del properties["cleanup"]["description"]
    properties["staging"]["properties"]["retries"] = {"type": "integer"}
    properties["workerGroups"]["items"]["properties"]["rack"] = {"type": "string"}
    expected = r"without a description: workerGroups\[\]\.rack, staging\.retries, cleanup$"
    with pytest.raises(SystemExit, match=expected):
        chart_docs.generated_texts()


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
    searched = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert not [entry for entry in searched if entry["location"].startswith("adr/")]
    page = (site / "index.html").read_text("utf-8")
    assert "Three commands train it" in page, "the first screen of the README"
    assert '<script src="http' not in page
    assert "fonts.googleapis.com" not in page
