"""The notes of a version, and whether a tree may be released."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import hvdchart
from devtools.common.errors import DevtoolsError
from devtools.release.__main__ import check
from devtools.release.changelog import UNRELEASED, is_off, notes, problems, versions, write_version

CHANGELOG = """\
# Changelog

## 0.3.0 (Unreleased)

- [More](docs/spec.md), [elsewhere](https://example.com).

## 0.2.0 (2026-12-01)

- Something.
"""


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    file = tmp_path / "CHANGELOG.md"
    file.write_text(CHANGELOG)
    return file


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose files all have the present version."""
    (tmp_path / "hvdchart").mkdir()
    (tmp_path / "hvdchart" / "__init__.py").write_text(f'__version__ = "{VERSION}"\n')
    chart = tmp_path / "charts" / "horovod" / "Chart.yaml"
    chart.parent.mkdir(parents=True)
    chart.write_text(f"version: {VERSION}\n")
    (tmp_path / "CITATION.cff").write_text(f"version: {VERSION}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"## {VERSION} (2026-12-01)\n\n- A.\n")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "CODEOWNERS").write_text("# Replace OWNER.\n* @ada\n")
    return tmp_path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit on `main`, and one on `side` that `main` does not have."""
    for words in (
        ["init", "--quiet", "--initial-branch=main"],
        ["commit", "--quiet", "--allow-empty", "--message=one"],
        ["checkout", "--quiet", "-b", "side"],
        ["commit", "--quiet", "--allow-empty", "--message=two"],
    ):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True)
    return tmp_path


def test_notes_are_those_of_one_version(changelog: Path) -> None:
    assert notes("0.2.0", file=changelog) == "- Something.\n"


def test_links_of_notes_lead_to_the_tag(changelog: Path) -> None:
    text = notes("0.3.0", "https://example.com/me/it", changelog)
    assert "[More](https://example.com/me/it/blob/v0.3.0/docs/spec.md)" in text
    assert "[elsewhere](https://example.com)." in text


def test_version_without_notes_is_named(changelog: Path) -> None:
    with pytest.raises(DevtoolsError, match=r"9\.9\.9"):
        notes("9.9.9", file=changelog)


def test_present_version_has_notes() -> None:
    assert notes(hvdchart.__version__)


VERSION = hvdchart.__version__


def test_every_file_names_the_same_version() -> None:
    assert set(versions().values()) == {VERSION}


def test_tree_whose_files_agree_with_the_tag_may_be_released(tree: Path) -> None:
    assert problems(f"v{VERSION}", tree) == []


def test_file_with_another_version_than_the_tag_is_named(tree: Path) -> None:
    (tree / "charts" / "horovod" / "Chart.yaml").write_text("version: 9.9.9\n")
    (wrong,) = problems(f"v{VERSION}", tree)
    assert "charts/horovod/Chart.yaml has version 9.9.9" in wrong


def test_version_without_a_day_is_not_released(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(f"## {VERSION} (Unreleased)\n\n- A.\n")
    (wrong,) = problems(f"v{VERSION}", tree)
    assert "Unreleased" in wrong


def test_version_is_written_into_each_file(tree: Path) -> None:
    before = {file: file.read_text() for file in tree.rglob("*.*") if file.is_file()}
    write_version("9.9.9", root=tree)
    assert '"9.9.9"' in (tree / "hvdchart" / "__init__.py").read_text()
    assert (
        (tree / "CHANGELOG.md").read_text().startswith(f"## 9.9.9 ({UNRELEASED})\n\n## {VERSION}")
    )
    named = {file: version for file, version in versions(tree).items() if file[0] != "h"}
    assert set(named.values()) == {"9.9.9"}
    (tree / "CHANGELOG.md").write_text(f"## {VERSION} ({UNRELEASED})\n\n- A.\n")
    write_version(VERSION, "2026-12-01", tree)
    assert {file: file.read_text() for file in before} == before
    assert problems(f"v{VERSION}", tree) == []


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (".github/CODEOWNERS", "* @OWNER\n", "the placeholder OWNER"),
        (
            "charts/horovod/Chart.yaml",
            f"version: {VERSION}\nhome: https://github.com/OWNER/REPOSITORY\n",
            "the placeholder OWNER and REPOSITORY",
        ),
    ],
)
def test_file_with_a_placeholder_is_not_released(
    tree: Path, file: str, text: str, problem: str
) -> None:
    (tree / file).write_text(text)
    (wrong,) = problems(f"v{VERSION}", tree)
    assert wrong.startswith(file)
    assert problem in wrong


def test_commit_that_the_branch_does_not_have_is_not_released(repository: Path) -> None:
    assert is_off("main", repository)
    assert not is_off("side", repository)


def test_check_refuses_a_commit_that_the_branch_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("devtools.release.changelog.is_off", lambda branch: branch == "origin/main")
    with pytest.raises(DevtoolsError, match=rf"origin/main .*\bv{VERSION}"):
        check(f"v{VERSION}", branch="origin/main")


def test_branch_that_is_not_there_releases_nothing(repository: Path) -> None:
    with pytest.raises(DevtoolsError):
        is_off("origin/main", repository)
