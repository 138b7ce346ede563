"""What reviews ask of the subjects of commits, and of their generated files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devtools.checks.commits import main, problems_since, subject_problems
from devtools.common.errors import DevtoolsError


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("chart: retry API calls", None),
        ("hvd_pods/rules: feed the state", None),
        ("chart, docs: pass each value", None),
        ('Revert "chart: retry API calls"', None),
        ("retry API calls", "no scope"),
        ("Chart: retry API calls", "no scope"),
        ("chart: retry API calls.", "full stop"),
        ("chart: retried API calls", "'retried' is not imperative"),
        ("chart: retries API calls", "'retries' is not imperative"),
        ("chart: retrying API calls", "'retrying' is not imperative"),
        (f"chart: retry {'x' * 58}", None),
        (f"chart: retry {'x' * 60}", "73 characters"),
    ],
)
def test_subject_is_imperative_short_and_has_a_scope(subject: str, problem: str | None) -> None:
    found = [*subject_problems(subject)]
    assert len(found) == (problem is not None)
    assert all(problem in text for text in found if problem)


def test_hook_checks_the_first_line_of_the_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("chart: retry API calls\n\nThe body has whole sentences.\n")
    assert main([str(message)]) == 0
    message.write_text("Retries API calls.\n")
    assert main([str(message)]) == 1
    assert "no scope" in capsys.readouterr().out


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose third commit has a stale file, and whose fourth one has it no more."""

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True)

    git("init", "--quiet", "--initial-branch=main")
    (tmp_path / "Makefile").write_text("check-generated:\n\t@test ! -e stale\n")
    for subject in ("chart: begin", "chart: go on", "chart: spoil", "Mends a file"):
        stale = tmp_path / "stale"
        stale.unlink(missing_ok=True)
        if subject == "chart: spoil":
            stale.touch()
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "--message", subject)
    return tmp_path


def test_each_commit_is_checked_with_its_own_files(repository: Path) -> None:
    stale, mended = problems_since("HEAD~3", repository)
    assert "chart: spoil: generated files differ" in stale
    assert "Mends a file: no scope" in mended
    assert [*problems_since("HEAD", repository)] == []
    trees = ["git", "-C", str(repository), "worktree", "list"]
    assert len(subprocess.check_output(trees, text=True).splitlines()) == 1


def test_revision_that_is_not_there_is_an_error(repository: Path) -> None:
    with pytest.raises(DevtoolsError):
        [*problems_since("origin/main", repository)]
