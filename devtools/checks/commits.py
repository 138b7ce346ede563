"""What reviews ask of each commit: the form of its subject, and generated files that fit.

`python -m devtools.checks.commits FILE` checks the message in a file, as git's hook commit-msg has
it. With `--since REVISION` it checks the subjects of the commits since then, and runs
`make check-generated` with the files of each.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 72
SCOPE = re.compile(r"[a-z][\w./, -]*: (\S+)")
# What git writes for other commits, and what it takes away again in a rebase.
OF_GIT = re.compile(r'Revert "|Merge |(fixup|squash|amend)! ')
# A first word with such an end tells what was done, is done or is there.
ENDS = re.compile(r"[a-z]+(ed|ing|[^s]s)")
IMPERATIVES = {"bring", "embed", "exceed", "feed", "focus", "need", "proceed", "seed", "speed"}


def subject_problems(subject: str) -> Iterator[str]:
    """What is wrong with the subject of a commit, with the remedy."""
    if OF_GIT.match(subject):
        return
    if len(subject) > LONGEST:
        yield f"{len(subject)} characters: use at most {LONGEST}, and move reasons to the body"
    if subject.endswith("."):
        yield "a subject ends without a full stop"
    scoped = SCOPE.match(subject)
    if scoped is None:
        yield "no scope: begin with the part that changes, such as `chart: `"
    elif ENDS.fullmatch(verb := scoped[1]) and verb not in IMPERATIVES:
        yield f"{verb!r} is not imperative: begin with a verb such as `add`, after the scope"


def _git(place: Path, *arguments: str) -> str:
    command = ["git", "-C", str(place), *arguments]
    return read_output(command, remedy="name a commit of this repository")


def problems_since(revision: str, root: Path = ROOT) -> Iterator[str]:
    """What is wrong with each commit since `revision`, without merges, the oldest first.

    Raises DevtoolsError when there is no such revision, as in a shallow clone.
    """
    commits = _git(root, "rev-list", "--no-merges", "--reverse", f"{revision}..HEAD").split()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git(root, "worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            for commit in commits:
                subject = _git(root, "show", "--no-patch", "--format=%s", commit).strip()
                for problem in subject_problems(subject):
                    yield f"{commit[:8]} {subject}: {problem}"
                _git(tree, "checkout", "--quiet", "--detach", commit)
                # What it prints names the files.
                check = ["make", "--silent", "--directory", str(tree), "check-generated"]
                if subprocess.run(check, check=False).returncode != 0:
                    yield (
                        f"{commit[:8]} {subject}: generated files differ: run `make generate` in "
                        "this commit"
                    )
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def main(arguments: list[str]) -> int:
    """Prints all problems. Returns 1 when there is one, and 2 when the commits cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m devtools.checks.commits")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("file", nargs="?", type=Path, help="the file with the message of a commit")
    chosen.add_argument("--since", metavar="REVISION", help="check the commits since this one")
    given = parser.parse_args(arguments)
    try:
        if given.since is None:
            subject = given.file.read_text("utf-8").partition("\n")[0]
            found = [f"{subject}: {problem}" for problem in subject_problems(subject)]
        else:
            found = [*problems_since(given.since)]
    except DevtoolsError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
