"""Which tests run in one process when several processes share them, and which need a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devtools.common.repository import ROOT
from tests.support.scheduling import group_of, place_in_order


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/unit/test_a.py::test_b", "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::TestA::test_b", "tests/unit/test_a.py"),
        ("tests/images/test_a.py::test_b", "ranks of images"),
        ("tests/images/test_wheels.py::test_b", "wheels and defects of Horovod"),
        ("tests/e2e/test_a.py::test_b", "tests/e2e/test_a.py::test_b"),
        ("tests/e2e/test_a.py::test_b[x::y]", "tests/e2e/test_a.py::test_b[x::y]"),
        ("tests/e2e/test_a.py::TestA::test_b", "tests/e2e/test_a.py::TestA"),
        ("tests/faults/test_a.py::TestA::test_b[x::y]", "tests/faults/test_a.py::TestA"),
    ],
)
def test_group_is_a_resource_a_file_a_class_or_the_test_alone(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_tests_of_seconds_come_last() -> None:
    files = ("unit/test_a.py", "e2e/test_a.py", "chart/test_a.py", "images/test_a.py")
    placed = sorted((f"tests/{file}::test_b" for file in files), key=place_in_order)
    assert [nodeid.split("/")[1] for nodeid in placed] == ["images", "e2e", "chart", "unit"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        # One has the fixture itself, and one through another fixture.
        ("cluster", {"test_real_api", "test_admission"}),
        ("not cluster", {"test_kubernetes_versions"}),
    ],
)
def test_marker_chooses_the_tests_that_need_a_cluster(expression: str, chosen: set[str]) -> None:
    folder = ROOT / "tests" / "chart"
    names = ("test_real_api", "test_admission", "test_kubernetes_versions")
    files = [str(folder / f"{name}.py") for name in names]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", expression, *files]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tests = [line for line in printed.splitlines() if "::" in line]
    assert {Path(test.split("::")[0]).stem for test in tests} == chosen
