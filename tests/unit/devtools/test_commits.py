"""What reviews ask of the messages of commits, and of their files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from devtools.checks.commits import (
    SCOPES,
    file_problems,
    main,
    message_problems,
    problems_since,
    subject_problems,
)
from devtools.checks.lint import checks_in_python
from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose third commit has a file that lint refuses; the fourth one lacks it."""

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True)

    git("init", "--quiet", "--initial-branch=main")
    (tmp_path / "Makefile").write_text("lint:\n\t@test ! -e folded\n")
    for subject in ("chart: begin", "chart: go on", "chart: spoil", "Mends a file"):
        folded = tmp_path / "folded"
        folded.unlink(missing_ok=True)
        if subject == "chart: spoil":
            folded.touch()
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "--message", subject)
    return tmp_path


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("chart: retry API calls", None),
        ("chart, docs: pass each value", None),
        ('Revert "chart: retry API calls"', None),
        ("retry API calls", "no scope"),
        ("Chart: retry API calls", "no scope"),
        ("warm: retry API calls", "no scope is called warm: use one of chart, pods, master"),
        ("chart, warm: retry API calls", "no scope is called warm:"),
        (f"chart: retry {'x' * 58}", None),
        (f"chart: retry {'x' * 60}", "73 characters"),
    ],
)
def test_subject_is_short_and_has_a_scope(subject: str, problem: str | None) -> None:
    problems = [*subject_problems(subject)]
    assert len(problems) == (problem is not None)
    assert all(problem in text for text in problems if problem)


CODE = "8\t7\tcharts/horovod/values.yaml\n"
REASONS = "They fail when the API server starts again.\n"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (f"\n{REASONS}", None),
        ("", "no body"),
        ("\n\n", "no body"),
        (REASONS, "second line"),
        (f"\n{'word ' * 14}\n", None),
        (f"\n{'word ' * 15}\n", " 74 "),
        (f"\nThe reason is in https://example.com/{'x' * 60}.\n", None),
        (f"\n{REASONS}\nCo-authored-by: {'x' * 50} <x@example.com>\n", None),
    ],
)
def test_body_gives_reasons_in_short_lines(body: str, problem: str | None) -> None:
    problems = [*message_problems(f"chart: retry API calls\n{body}", CODE)]
    assert len(problems) == (problem is not None)
    assert all(problem in text for text in problems if problem)


@pytest.mark.parametrize(
    "changes",
    [
        "5\t5\tcharts/horovod/values.yaml\n",
        "-\t-\tcharts/horovod/charts/programs/programs.tgz\n4\t4\ta.py\n",
        "200\t7\tdocs/pictures/storm.svg\n9\t9\thvdchart/README.md\n",
        "",
    ],
)
def test_small_change_and_change_of_pages_need_no_body(changes: str) -> None:
    assert [*message_problems("chart: retry API calls", changes)] == []


def test_contributing_names_each_scope() -> None:
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text("utf-8").split())
    assert ", ".join(f"`{scope}`" for scope in SCOPES) in text


def test_hooks_run_the_checks_of_lint_that_need_python_alone() -> None:
    config = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    names = [hook["name"] for hook in hooks if "commit-msg" not in hook.get("stages", ())]
    assert sorted(names) == sorted(checks_in_python())


def test_hook_checks_the_message_without_comments(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    cut = f"# {'-' * 24} >8 {'-' * 24}\n+{'x' * 100}\n"
    message.write_text(f"chart: retry API calls\n# {'x' * 100}\n\n{REASONS}\n{cut}")
    (repository / "long").write_text("line\n" * 20)
    subprocess.run(["git", "-C", str(repository), "add", "long"], check=True)
    assert [*file_problems(message, repository)] == []
    message.write_text("chart: retry API calls\n")
    (problem,) = file_problems(message, repository)
    assert "body" in problem
    message.write_text("Retries API calls.\n")
    assert main([str(message)]) == 1
    assert "no scope" in capsys.readouterr().out


def test_each_commit_is_checked_with_its_own_files(repository: Path) -> None:
    folded, mended = problems_since("HEAD~3", repository)
    assert " chart: spoil: " in folded
    assert " Mends a file: " in mended
    assert [*problems_since("HEAD", repository)] == []
    trees = ["git", "-C", str(repository), "worktree", "list"]
    assert len(subprocess.check_output(trees, text=True).splitlines()) == 1


@pytest.mark.parametrize("is_folder_left", [True, False])
def test_checks_after_a_killed_one_begin_anew(repository: Path, *, is_folder_left: bool) -> None:
    tree = repository / "build" / "commit"
    command = ["git", "-C", str(repository), "worktree", "add", "--quiet", "--detach", str(tree)]
    subprocess.run(command, check=True)
    shutil.rmtree(tree)
    if is_folder_left:
        tree.mkdir()
    assert [*problems_since("HEAD", repository)] == []
    assert not tree.exists()


def test_commits_that_blame_leaves_out_are_those_of_the_history(repository: Path) -> None:
    command = ["git", "-C", str(repository), "rev-parse", "HEAD"]
    commit = subprocess.check_output(command, text=True).strip()
    file = repository / ".git-blame-ignore-revs"
    file.write_text(f"# Renames.\n\n{commit}\n")
    assert [*problems_since("HEAD", repository)] == []
    file.write_text(f"{commit}\n{commit[:8]}\n{'0' * 40}\n")
    places = [problem.partition(": ")[0] for problem in problems_since("HEAD", repository)]
    assert places == [".git-blame-ignore-revs:2", ".git-blame-ignore-revs:3"]


def test_revision_that_is_not_there_is_an_error(repository: Path) -> None:
    with pytest.raises(DevtoolsError):
        [*problems_since("origin/main", repository)]
