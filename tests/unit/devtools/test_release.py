"""Which tree may be released, and the notes of a version."""

from __future__ import annotations

from pathlib import Path

import pytest

import hvdchart
from devtools.release import artifacts, tree
from devtools.release.changelog import ReleaseError, notes, sections

CHANGELOG = """\
# Changelog

Head.

## 0.3.0 (Unreleased)

- [More](docs/spec.md), [elsewhere](https://example.com).

## 0.2.0 (2026-12-01)

- Something.

## 0.1.0

- First.
"""


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    file = tmp_path / "CHANGELOG.md"
    file.write_text(CHANGELOG)
    return file


def test_sections_are_read_with_their_days() -> None:
    read = [(section.version, section.day) for section in sections(CHANGELOG)]
    assert read == [("0.3.0", "Unreleased"), ("0.2.0", "2026-12-01"), ("0.1.0", "")]


def test_notes_are_those_of_one_version(changelog: Path) -> None:
    assert notes("0.2.0", file=changelog) == "- Something.\n"
    assert notes("0.1.0", file=changelog) == "- First.\n"


def test_links_to_files_lead_to_the_tag(changelog: Path) -> None:
    text = notes("0.3.0", "https://example.com/me/it", changelog)
    assert "[More](https://example.com/me/it/blob/v0.3.0/docs/spec.md)" in text
    assert "[elsewhere](https://example.com)." in text


def test_version_without_a_section_is_named(changelog: Path) -> None:
    with pytest.raises(ReleaseError, match=r"does not describe 9\.9\.9"):
        notes("9.9.9", file=changelog)


def test_present_version_has_notes() -> None:
    assert notes(hvdchart.__version__)


def make_tree(root: Path, *, chart: str = hvdchart.__version__, day: str = "2026-12-01") -> Path:
    (root / "charts" / "horovod").mkdir(parents=True)
    (root / "charts" / "horovod" / "Chart.yaml").write_text(f"version: {chart}\n")
    (root / "CITATION.cff").write_text(f"version: {hvdchart.__version__}\n")
    (root / "CHANGELOG.md").write_text(f"## {hvdchart.__version__} ({day})\n\n- A.\n")
    return root


def test_tree_whose_files_agree_may_be_released(tmp_path: Path) -> None:
    assert tree.problems(f"v{hvdchart.__version__}", make_tree(tmp_path)) == []


def test_file_with_another_version_is_named(tmp_path: Path) -> None:
    (wrong,) = tree.problems(f"v{hvdchart.__version__}", make_tree(tmp_path, chart="9.9.9"))
    assert "charts/horovod/Chart.yaml has version 9.9.9" in wrong


def test_other_tag_and_missing_day_are_named(tmp_path: Path) -> None:
    wrong = tree.problems("v9.9.9", make_tree(tmp_path, day="Unreleased"))
    assert len(wrong) == 5
    assert wrong[-1].endswith("Unreleased: write the day instead")


def test_chart_gets_home_and_maintainers_from_where_it_is_published() -> None:
    added = artifacts.published("https://example.com/me/it")
    assert added["home"] == "https://example.com/me/it"
    assert added["maintainers"] == [{"name": "me", "url": "https://example.com/me"}]
    assert str(added["icon"]).endswith(artifacts.ICON)
    assert (artifacts.ROOT / artifacts.ICON).is_file()
    assert artifacts.published("") == {}


def test_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(ReleaseError, match="is not empty"):
        artifacts.build(tmp_path)
