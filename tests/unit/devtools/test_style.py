"""What reviews ask of each file and no formatter sees."""

from __future__ import annotations

import pytest

from devtools.checks.style import (
    citation_problems,
    constant_problems,
    folder_problems,
    page_citation_problems,
    python_problems,
    script_problems,
    template_problems,
    workflow_problems,
)


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ("from tests.chart.test_pods import render", True),
        ("from tests.chart import cases, test_pods", True),
        ("from tests.chart.conftest import place", True),
        ("from tests import conftest", True),
        ("from tests.chart.cases import GROUPS", False),
        ("from hvdchart.test_pods import render", False),
    ],
)
def test_tests_import_nothing_from_other_tests(line: str, is_problem: bool) -> None:
    problems = list(python_problems(f"import os\n{line}\n"))
    assert [number for number, _ in problems] == [2] * is_problem


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ("LONGEST = 500", True),
        ("_MOST = 3", True),
        ("LAST: int = 500", True),
        ("CLOSE_WITHIN = 2.0", True),
        ("_RENEW_EVERY: float = 10.0", True),
        ("WITHIN = 2.0", True),
        ("LONGEST_LINE_BYTES = 1 << 16", True),
        ("class Pauses:\n    AGAIN_AFTER = 1.0", True),
        ("MAX_LINE_BYTES = 1 << 16", False),
        ("CLOSE_TIMEOUT_SECONDS: float = 2.0", False),
        ("wait_for = 2.0", False),
    ],
)
def test_a_constant_names_its_subject_and_its_unit(line: str, is_problem: bool) -> None:
    problems = list(constant_problems(f"import os\n{line}\n"))
    assert len(problems) == is_problem


@pytest.mark.parametrize(("length", "is_problem"), [(110, False), (111, True)])
def test_a_line_of_a_template_is_no_longer_than_its_limit(length: int, is_problem: bool) -> None:
    problems = list(template_problems(f"{{{{- /*\n{'x' * length}\n*/ -}}}}\n"))
    assert [number for number, _ in problems] == [2] * is_problem


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ("x" * 60 + " " + "y" * 60, True),
        ("x" * 60 + " " + "y" * 59, False),
        ("driver-opts: image=registry/name@sha256:" + "0" * 100, False),
    ],
)
def test_a_line_of_a_script_is_wrapped_where_it_can_be(line: str, is_problem: bool) -> None:
    assert bool(list(script_problems(f"set -eu\n{line}\n"))) is is_problem


@pytest.mark.parametrize(
    ("action", "is_problem"),
    [
        ("actions/cache@v4", True),
        ("actions/cache@main # v4.0.0", True),
        (f"actions/cache@{'a' * 40}", True),
        (f"actions/cache@{'a' * 40} # v4.0.0", False),
        ("./.github/actions/setup", False),
    ],
)
def test_an_action_of_others_is_a_commit(action: str, is_problem: bool) -> None:
    problems = list(workflow_problems(f"steps:\n- uses: {action}\n"))
    assert [number for number, _ in problems] == [2] * is_problem


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ("ROOT = Path(__file__).resolve().paren" + "ts[2]", True),
        ("DOCS = CHART.paren" + "ts[1]", True),
        ("folder = file.parent", False),
        ("is_inside = folder in file.parents", False),
    ],
)
def test_files_import_the_folders_of_the_repository(line: str, is_problem: bool) -> None:
    problems = list(folder_problems(f"import os\n{line}\n"))
    assert [number for number, _ in problems] == [2] * is_problem


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ("# A rule (ADR 12).", False),
        ("# A rule (AD" + "R 9999).", True),
        ("# A rule (docs/" + "adr/0012).", True),
        ("# A rule: docs/" + "adr/0012-warm-ranks.md", True),
        ("# docs/adr lists the decisions.", False),
    ],
)
def test_comments_cite_a_decision_by_its_number(line: str, is_problem: bool) -> None:
    problems = list(citation_problems(f"import os\n{line}\n"))
    assert [number for number, _ in problems] == [2] * is_problem


def test_citation_may_continue_on_the_next_line() -> None:
    text = "# Start fast (ADR\n# 12), and decide (AD" + "R\n# 9999)."
    assert [number for number, _ in citation_problems(text)] == [2]


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ("It starts [fast](adr/0012-warm-ranks.md).", False),
        ("It starts fast ([ADR 12](0012-warm-ranks.md)).", False),
        ("It starts [fast](../docs/" + "adr/0012-warm-ranks.md).", False),
        ("It starts fast (ADR 12).", True),
        ("It starts fast, see `docs/" + "adr/0012`.", True),
    ],
)
def test_pages_link_the_decisions_that_they_cite(line: str, is_problem: bool) -> None:
    problems = list(page_citation_problems(f"# Title\n{line}\n"))
    assert [number for number, _ in problems] == [2] * is_problem
