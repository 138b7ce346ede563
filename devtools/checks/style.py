"""Check style rules that the formatter does not: literals and statements that are folded to save
lines, tests that import from other tests, constants whose names lack a subject or a unit, long
lines of Markdown, templates, shell scripts and workflows, lines of values.source.yaml with several
keys, actions in workflows that can change, files that count the folders above them, and citations
of decisions.

`python -m devtools.checks.style` prints each place and exits with 1 when there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from devtools.checks.problems import Check, check_files, print_problems
from devtools.common.markdown import MAX_PAGE_LINE_CHARACTERS
from devtools.common.repository import DOCS

# As .editorconfig says of *.tpl; manifests and notes are templates, too.
MAX_TEMPLATE_LINE_CHARACTERS = 110
# As .editorconfig says of files without a rule of their own.
MAX_SCRIPT_LINE_CHARACTERS = 120
# A line may be longer if a word of it alone, such as an image with its digest, leaves no room.
MAX_WRAPPED_WORD_CHARACTERS = 80
# Split, so that this file does not match.
SKIP = "# fmt" + ": skip"
# Parts of a line of Markdown that cannot be broken: a code span, a link.
UNBREAKABLE = re.compile(r"`[^`]*`|\[[^]]*\]\([^)]*\)")
VALUES = "charts/horovod/values.source.yaml"
TEMPLATES = "charts/horovod/templates/*.tpl"
MANIFESTS = "charts/horovod/templates/*.yaml"
NOTES_TEMPLATE = "charts/horovod/templates/NOTES.txt"
# Without the scripts of other projects that tests migrate.
SHELL_SCRIPTS = "charts/*.sh"
IMAGE_SCRIPTS = "images/*.sh"
WORKFLOWS = ".github/*.y*ml"
OTHERS_ACTION = re.compile(r"uses: (?!\./)(.*)")
PINNED_ACTION = re.compile(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
CHART_PROGRAMS = "charts/horovod/files/*.py"
# Where comments and messages cite decisions.
CITING = ("*.py", "charts/*.yaml", "charts/*.tpl", "charts/*.sh", "images/*.sh", "values/*.yaml")
# Split, so that this file does not match. A path in quotation marks is one that a program reads.
DECISION_PATH = re.compile(r"(?<!\")docs/" + r"adr/\d+")
DECISION = re.compile(r"\bADR\s+(?:#\s+)?(\d+)")
LINK_TARGET = re.compile(r"\]\([^)]*\)")
REPOSITORY = "devtools/common/repository.py"
# What runs in a checkout only. The programs of the pods and hvdchart also run without one.
CHECKOUT_ONLY = ("devtools/*.py", "images/*.py", "tests/*.py", f":!{REPOSITORY}")
# Split, so that this file does not match.
COUNTED_FOLDERS = ".paren" + "ts["


class NameRule(NamedTuple):
    """A form that no constant's name has, and the form to use instead."""

    form: re.Pattern[str]
    remedy: str


# An adjective says neither what is bounded nor in which unit.
BARE_BOUND = NameRule(
    re.compile(r"FEW|HIGHEST|LARGEST|LAST|LEAST|LONGEST|LOWEST|MOST|SHORTEST|SMALLEST"),
    "name its subject and its unit, as MAX_LINE_BYTES does",
)
DURATION = NameRule(
    re.compile(r"(.*_)?(AFTER|EVERY|FOR|UNTIL|WITHIN)"),
    "end the name of a duration with its unit, as CONNECT_TIMEOUT_SECONDS does",
)
# Limits have one form.
SUPERLATIVE = NameRule(
    re.compile(r"(FEWEST|HIGHEST|LARGEST|LEAST|LONGEST|LOWEST|MOST|SHORTEST|SMALLEST)_.*"),
    "begin the name of a limit with MAX or MIN",
)
NAME_RULES = (BARE_BOUND, DURATION, SUPERLATIVE)


def python_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each folded place of a Python file.

    Raises SyntaxError for text that is not Python.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if SKIP in line:
            yield number, f"{SKIP[2:]}: let ruff format the statement"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Starred) and isinstance(node.value, (ast.Tuple, ast.List)):
            yield node.lineno, "an unpacked literal: write its items where they belong"
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None and isinstance(value, ast.Dict):
                    yield value.lineno, "an unpacked literal: write its items where they belong"
        elif isinstance(node, ast.Assign) and _is_split_in_two(node):
            yield node.lineno, "a parallel assignment: write one assignment for each name"
        elif isinstance(node, ast.ImportFrom) and _is_of_tests(node):
            yield node.lineno, "an import from a module of tests: move what is shared to a helper"


def _is_split_in_two(node: ast.Assign) -> bool:
    """Return whether `a, b = x, y` could be two statements: its values do not read its names."""
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return False
    written = {ast.unparse(expression) for expression in target.elts}
    return not any(
        isinstance(expression, ast.expr) and ast.unparse(expression) in written
        for expression in ast.walk(node.value)
    )


def _is_of_tests(node: ast.ImportFrom) -> bool:
    """Return whether the statement imports from tests: a module such as tests.chart.test_pods, a
    conftest, or names of one.
    """
    folder, *parts = (node.module or "").split(".")
    names = [*parts, *(alias.name for alias in node.names)]
    return folder == "tests" and any(
        name == "conftest" or name.startswith("test_") for name in names
    )


def constant_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each constant of a module or class whose name breaks a rule."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if isinstance(target, ast.Name) and target.id.isupper():
            for rule in NAME_RULES:
                if rule.form.fullmatch(target.id.strip("_")):
                    yield node.lineno, f"{target.id}: {rule.remedy}"


def folder_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each place that counts folders: a moved file has other ones."""
    for number, line in enumerate(text.splitlines(), 1):
        if COUNTED_FOLDERS in line:
            yield number, f"{COUNTED_FOLDERS}...]: import the folder from {REPOSITORY}"


def citation_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each citation of a decision that has another form than ADR 12, or
    names no page.
    """
    for match in DECISION_PATH.finditer(text):
        yield _line_of(text, match), f"{match[0]}: cite a decision by its number, as ADR 12"
    for match in DECISION.finditer(text):
        if not any((DOCS / "adr").glob(f"{int(match[1]):04}-*.md")):
            yield _line_of(text, match), f"{match[0]}: docs/adr has no such decision"


def page_citation_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each citation of a decision on a page that is no link."""
    for number, line in enumerate(text.splitlines(), 1):
        path = DECISION_PATH.search(LINK_TARGET.sub("", line))
        if bare := path or DECISION.search(UNBREAKABLE.sub("", line)):
            yield number, f"{bare[0]}: link the page of the decision"


def _line_of(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def markdown_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each long line of a page that could be wrapped.

    Tables, code blocks, and lines of one long word such as a link cannot be wrapped. Yield the
    citations that are no links, too.
    """
    yield from page_citation_problems(text)
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if content.removeprefix("- ").startswith(("```", "~~~")):
            in_code = not in_code
        if (
            in_code
            or len(line) <= MAX_PAGE_LINE_CHARACTERS
            or line.startswith("    ")
            or content[0] == "|"
        ):
            continue
        if len(UNBREAKABLE.sub("_", content.removeprefix("- ")).split()) > 1:
            yield number, f"{len(line)} characters: wrap the line at {MAX_PAGE_LINE_CHARACTERS}"


def template_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each long line of a template."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_TEMPLATE_LINE_CHARACTERS:
            yield number, f"{len(line)} characters: use at most {MAX_TEMPLATE_LINE_CHARACTERS}"


def script_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each long line of a shell script or a workflow."""
    for number, line in enumerate(text.splitlines(), 1):
        is_wrapped = max(map(len, line.split()), default=0) <= MAX_WRAPPED_WORD_CHARACTERS
        if len(line) > MAX_SCRIPT_LINE_CHARACTERS and is_wrapped:
            yield number, f"{len(line)} characters: use at most {MAX_SCRIPT_LINE_CHARACTERS}"


def workflow_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each long line, and for each action of others that is no commit: a
    tag can be moved to other code.

    Dependabot changes the commit and the comment together.
    """
    yield from script_problems(text)
    for number, line in enumerate(text.splitlines(), 1):
        action = OTHERS_ACTION.search(line)
        if action and not PINNED_ACTION.fullmatch(action[1]):
            yield number, f"{action[1]}: write OWNER/ACTION@COMMIT # vX.Y.Z"


def values_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each line of values.source.yaml that has several keys."""
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if content.startswith(("{", "- {")) or (": {" in line and not content.startswith("#")):
            key, _, value = content.partition(": ")
            if value.startswith("{") and value != "{}":
                yield number, f"{key}: several keys on one line: write one key on each line"


def main() -> int:
    """Print all problems. Return 1 when there is one."""
    checks: dict[str, Check] = {
        "*.py": python_problems,
        "devtools/*.py": constant_problems,
        "hvdchart/*.py": constant_problems,
        "images/*.py": constant_problems,
        CHART_PROGRAMS: constant_problems,
        "*.md": markdown_problems,
        VALUES: values_problems,
        TEMPLATES: template_problems,
        MANIFESTS: template_problems,
        NOTES_TEMPLATE: template_problems,
        SHELL_SCRIPTS: script_problems,
        IMAGE_SCRIPTS: script_problems,
        WORKFLOWS: workflow_problems,
    }
    problems = (check_files(check, pattern) for pattern, check in checks.items())
    counted = check_files(folder_problems, *CHECKOUT_ONLY)
    cited = check_files(citation_problems, *CITING)
    return print_problems(chain(chain.from_iterable(problems), counted, cited))


if __name__ == "__main__":
    sys.exit(main())
