"""Check the form of each commit: its message, and that its files pass `make lint`.

Reviews judge the content of a message.

`python -m devtools.checks.commits FILE` checks the message in a file and the staged changes, for
git's hook commit-msg. `--since REVISION` checks the messages of the commits since that revision,
and runs `make lint` with the files of each. Earlier commits are not checked. It also checks that
.git-blame-ignore-revs names commits of this history.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT

MAX_MESSAGE_LINE_CHARACTERS = 72
# The part that changes: CONTRIBUTING.md names this list. A part that is not listed belongs to the
# next larger one: the warm process to worker, the doctor to cli, a benchmark to tests.
SCOPES = (
    # In the pods; use `pods` for code that several of them share.
    "chart",
    "pods",
    "master",
    "worker",
    "agent",
    "rank",
    "rules",
    "keep",
    # The command and the library; use `hvdchart` for code that several parts share.
    "hvdchart",
    "cli",
    "run",
    "calls",
    "plan",
    "spec",
    "watch",
    # Images and developer tools.
    "images",
    "devtools",
    "docs",
    "tests",
    "ci",
    "release",
)
SCOPE = re.compile(r"([a-z][\w./, -]*): \S")
# A commit needs no body if it changes at most this many lines, or only pages.
MAX_BODYLESS_LINES = 10
PAGES = re.compile(r"docs/|.*\.md$")
# Lines that cannot be broken.
UNBREAKABLE = re.compile(r"\S+://|[A-Z][a-z]+(?:-[a-z]+)*-by: ")
# The text that git adds below the message in an editor, with `--verbose`.
SCISSORS = re.compile(r"^# -+ >8 -+\n.*", re.MULTILINE | re.DOTALL)
# Subjects that git writes: of reverts and merges, and the prefixes that a rebase removes.
OF_GIT = re.compile(r'Revert "|Merge |(fixup|squash|amend)! ')


def subject_problems(subject: str) -> Iterator[str]:
    """Yield each problem of the subject of a commit, with the remedy."""
    if OF_GIT.match(subject):
        return
    if len(subject) > MAX_MESSAGE_LINE_CHARACTERS:
        yield (
            f"{len(subject)} characters: use at most {MAX_MESSAGE_LINE_CHARACTERS}, and move "
            "reasons to the body"
        )
    scoped = SCOPE.match(subject)
    if scoped is None:
        yield "no scope: begin with the part that changes, such as `chart: `"
        return
    if unknown := [scope for scope in scoped[1].split(", ") if scope not in SCOPES]:
        yield f"no scope is called {', '.join(unknown)}: use one of {', '.join(SCOPES)}"


def message_problems(message: str, changes: str) -> Iterator[str]:
    """Yield each problem of the message of a commit, with the remedy.

    changes: the changes of the commit, as `git diff --numstat` prints them.
    """
    subject, *rest = message.rstrip().split("\n")
    yield from subject_problems(subject)
    if OF_GIT.match(subject):
        return
    if rest and rest[0]:
        yield "the second line is not empty: leave it empty, and begin the body on the third"
    body = "\n".join(rest).strip()
    if not body and _needs_reasons(changes):
        yield (
            f"no body: give the reasons of a change of more than {MAX_BODYLESS_LINES} lines, not "
            "only of pages"
        )
    for line in rest[1:]:
        if len(line) > MAX_MESSAGE_LINE_CHARACTERS and not UNBREAKABLE.search(line):
            yield (
                f"a line of the body has {len(line)} characters: use at most "
                f"{MAX_MESSAGE_LINE_CHARACTERS}"
            )


def _needs_reasons(changes: str) -> bool:
    """Return whether the changes exceed MAX_BODYLESS_LINES and include other files than pages.

    A binary file counts as one line.
    """
    rows = [row.split("\t") for row in changes.splitlines() if row.count("\t") == 2]
    lines = sum(int(count) if count.isdigit() else 1 for row in rows for count in row[:2])
    return lines > MAX_BODYLESS_LINES and not all(PAGES.match(row[2]) for row in rows)


def file_problems(file: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield each problem of the message in a file, for the staged changes."""
    text = SCISSORS.sub("", file.read_text("utf-8"))
    message = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
    changes = _git(root, "diff", "--cached", "--numstat", "--no-renames")
    yield from message_problems(message.lstrip("\n"), changes)


def _git(place: Path, *arguments: str) -> str:
    command = ["git", "-C", str(place), *arguments]
    return read_output(command, remedy="name a commit of this repository")


def problems_since(revision: str, root: Path = ROOT) -> Iterator[str]:
    """Yield each problem of the commits since `revision`, without merges, the oldest first.

    Raises DevtoolsError when there is no such revision, as in a shallow clone.
    """
    yield from _blame_problems(root)
    commits = _git(root, "rev-list", "--no-merges", "--reverse", f"{revision}..HEAD").split()
    with _tree_at(revision, root) as tree:
        for commit in commits:
            message = _git(root, "show", "--no-patch", "--format=%B", commit)
            subject = message.partition("\n")[0]
            changes = _git(root, "show", "--format=", "--numstat", "--no-renames", commit)
            for problem in message_problems(message, changes):
                yield f"{commit[:8]} {subject}: {problem}"
            _git(tree, "checkout", "--quiet", "--detach", commit)
            # The checks print what they find.
            lint = ["make", "--silent", "--directory", str(tree), "lint"]
            if subprocess.run(lint, check=False).returncode != 0:
                yield f"{commit[:8]} {subject}: `make lint` fails: change this commit"


def _blame_problems(root: Path) -> Iterator[str]:
    """Yield each line of .git-blame-ignore-revs that names no commit of this history."""
    file = root / ".git-blame-ignore-revs"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    history = set(_git(root, "rev-list", "HEAD").split())
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#") and line not in history:
            yield f"{file.name}:{number}: no commit {line}: write all digits of one of this history"


@contextmanager
def _tree_at(revision: str, root: Path) -> Iterator[Path]:
    """Check out a revision beside the files of the repository, until the end of the context.

    The place is always the same: mypy reuses what it knows of a place, from commit to commit.
    """
    tree = root / "build" / "commit"
    # A process that was killed leaves the folder, and git's entry even when the folder is removed.
    if tree.exists():
        shutil.rmtree(tree)
    _git(root, "worktree", "prune")
    _git(root, "worktree", "add", "--quiet", "--detach", str(tree), revision)
    try:
        yield tree
    finally:
        _git(root, "worktree", "remove", "--force", str(tree))


def main(arguments: list[str]) -> int:
    """Print all problems. Return 1 when there is one, and 2 when the commits cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m devtools.checks.commits")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("file", nargs="?", type=Path, help="the file with the message of a commit")
    chosen.add_argument("--since", metavar="REVISION", help="check the commits since this one")
    options = parser.parse_args(arguments)
    try:
        if options.since is None:
            problems = [*file_problems(options.file)]
        else:
            problems = [*problems_since(options.since)]
    except DevtoolsError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
