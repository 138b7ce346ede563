"""Which test files one process has alone when several run tests."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SHARED_RESOURCES, GroupedScheduling

ROOT = Path(__file__).resolve().parents[2]


def test_files_that_share_a_cluster_are_in_one_group() -> None:
    assert [name for name in SHARED_RESOURCES if not (ROOT / name).is_file()] == []
    sharing = {str(file.relative_to(ROOT)) for file in ROOT.glob("tests/localkube/test_*.py")}
    assert sharing == {
        name for name, resource in SHARED_RESOURCES.items() if resource == "a second cluster"
    }


def test_files_of_a_group_are_one_unit_of_work_and_other_tests_are_each_their_own() -> None:
    scopes = [
        object.__new__(GroupedScheduling)._split_scope(f"tests/localkube/test_{name}")
        for name in ("lifecycle.py::test_a[1]", "workloads.py::test_b", "tools.py::test_c")
    ]
    assert scopes == [
        "a second cluster",
        "a second cluster",
        "tests/localkube/test_tools.py::test_c",
    ]
