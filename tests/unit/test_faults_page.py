"""docs/faults.md has a row for each fault that a test makes, and links to that test."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "faults.md"
LINK = re.compile(r"\[`(test_\w+)`\]\(([^)]+\.py)\)")


@cache
def read_faults(file: Path) -> dict[str, set[str]]:
    """The tests of a file, each with the names of the faults that it makes."""
    functions = [n for n in ast.parse(file.read_text()).body if isinstance(n, ast.FunctionDef)]
    return {
        function.name: {
            ast.literal_eval(call.args[0])
            for decorator in function.decorator_list
            for call in ast.walk(decorator)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.fault"
        }
        for function in functions
        if function.name.startswith("test_")
    }


def read_rows() -> list[tuple[str, str, Path]]:
    """The fault, the test and the test's file of each row of the page's tables."""
    tables = re.findall(r"^\|(?: ?:?-+:? ?\|)+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    rows = []
    for line in "".join(tables).splitlines():
        links = LINK.findall(line)
        assert len(links) == 1, f"this row does not link one test: {line}"
        name, target = links[0]
        rows.append((line.split("|")[1].strip(), name, (PAGE.parent / target).resolve()))
    return rows


@pytest.mark.parametrize(("fault", "test", "file"), read_rows())
def test_row_names_a_fault_that_its_test_makes(fault: str, test: str, file: Path) -> None:
    faults = read_faults(file)
    assert test in faults, f"{file} has no test {test}"
    # Tests outside tests/faults make no fault by a name.
    assert fault in faults[test] or file.parent != ROOT / "tests" / "faults"


def test_page_has_each_fault() -> None:
    files = (ROOT / "tests" / "faults").glob("test_*.py")
    made = {fault for file in files for faults in read_faults(file).values() for fault in faults}
    assert len(made) > 15
    assert made <= {fault for fault, _, _ in read_rows()}
