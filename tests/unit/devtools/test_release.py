"""The notes of a version, and whether a tree may be released."""

from __future__ import annotations

from pathlib import Path

import pytest

import hvdchart
from devtools.common.errors import DevtoolsError
from devtools.release.changelog import notes, problems

CHANGELOG = """\
# Changelog

## 0.3.0 (Unreleased)

- [More](docs/spec.md), [elsewhere](https://example.com).

## 0.2.0 (2026-12-01)

- Something.
"""


def test_notes_are_those_of_one_version_with_links_to_its_tag(tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(CHANGELOG)
    assert notes("0.2.0", file=changelog) == "- Something.\n"
    text = notes("0.3.0", "https://example.com/me/it", changelog)
    assert "[More](https://example.com/me/it/blob/v0.3.0/docs/spec.md)" in text
    assert "[elsewhere](https://example.com)." in text
    with pytest.raises(DevtoolsError, match=r"does not describe 9\.9\.9"):
        notes("9.9.9", file=changelog)
    assert notes(hvdchart.__version__)


def test_tree_is_released_only_if_its_files_agree_with_the_tag(tmp_path: Path) -> None:
    version = hvdchart.__version__
    (tmp_path / "charts" / "horovod").mkdir(parents=True)
    chart = tmp_path / "charts" / "horovod" / "Chart.yaml"
    chart.write_text(f"version: {version}\n")
    (tmp_path / "CITATION.cff").write_text(f"version: {version}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"## {version} (2026-12-01)\n\n- A.\n")
    assert problems(f"v{version}", tmp_path) == []
    chart.write_text("version: 9.9.9\n")
    (wrong,) = problems(f"v{version}", tmp_path)
    assert "charts/horovod/Chart.yaml has version 9.9.9" in wrong
    (tmp_path / "CHANGELOG.md").write_text(f"## {version} (Unreleased)\n\n- A.\n")
    assert problems("v9.9.9", tmp_path)[-1].endswith("Unreleased: write the day instead")
