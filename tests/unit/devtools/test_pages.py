"""Pages show nothing that does not parse or exist."""

from __future__ import annotations

import pytest

from devtools.checks.pages import page_problems


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```yaml\na: [1\n```", "no yaml"),
        ("```json\n{'a': 1}\n```", "no json"),
        ("| a |\n\n| b |", "header"),
        ("Text\n| a | b |", "header"),
        ("`make nothing`", "no target nothing"),
        ("    make nothing", "no target nothing"),
        ("`python3 -m devtools.nothing`", "no module devtools.nothing"),
        ("`docs/nothing.md`", "no such path"),
        ("`templates/nothing.yaml`", "no such file"),
        ("`rules/nothing.py`", "no such file"),
        ("`python -m hvdchart plan SPEC`", "write .venv/bin/python -m hvdchart"),
        ("`hvdchart nothing`", "no command nothing"),
        ("`hvdchart plan --nothing`", "no option --nothing"),
        ("    hvdchart scale", "Missing argument"),
        ("    hvdchart plan SPEC --nothing", "--nothing"),
    ],
)
def test_what_is_wrong_on_a_page_is_named(text: str, words: str) -> None:
    problems = list(page_problems(f"# Title\n\n{text}\n"))
    assert problems
    for number, problem in problems:
        assert number >= 3
        assert words in problem


@pytest.mark.parametrize(
    "text",
    [
        "```yaml\na: [1]\n---\nb: 2\n```",
        "```text\n| a |\n\n| b |\n```",
        "| a |\n|---|\n| b |",
        "`make unit`, `docs/testing.md`, `images/NAME/README.md`, `hvdchart/v1`",
        "`.venv/bin/python -m hvdchart plan SPEC`",
        "`hvdchart plan`, `hvdchart --help`",
        "    hvdchart plan SPEC | less",
        "    hvdchart exec NAME 0 -- nvidia-smi --query",
    ],
)
def test_what_is_right_on_a_page_is_accepted(text: str) -> None:
    assert list(page_problems(f"# Title\n\n{text}\n")) == []
