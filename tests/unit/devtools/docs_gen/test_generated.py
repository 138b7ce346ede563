"""Writing generated files and comparing them."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.docs_gen.generated import replace_section, write_or_compare


def test_section_between_marker_lines_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<start>\nold\n<end>\nafter\n")
    new_text = replace_section(page, "<start>", "new", "<end>")
    assert new_text == "before\n<start>\nnew\n<end>\nafter\n"
    page.write_text(new_text)
    assert replace_section(page, "<start>", "new", "<end>") == new_text


@pytest.mark.parametrize("text", ["<start>\n", "<end>\n", "<end>\n<start>\n"])
def test_page_without_a_marker_line_is_an_error(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
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
    assert f"{other}: differs" in (message := capsys.readouterr().err)
    assert "-old\n+new\n" in message
    assert f"{missing}: differs" in message
    assert f"{same}: differs" not in message
    assert other.read_text() == "old\n"
    assert not missing.exists()


def test_files_are_written_and_then_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    assert write_or_compare({file: "new\n"}, []) == 0
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert write_or_compare({file: "new\n"}, ["--check"]) == 0
    assert write_or_compare({file: "new\n"}, []) == 0
    assert capsys.readouterr().out == ""
