"""Which tests one process runs together when several run tests, and which begin first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import (
    APART,
    ORDER,
    SHARED_RESOURCES,
    GroupedScheduling,
    pytest_collection_modifyitems,
    pytest_xdist_make_scheduler,
)

ROOT = Path(__file__).resolve().parents[2]


def test_places_of_tests_exist() -> None:
    places = {*SHARED_RESOURCES, *APART, *ORDER}
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("localkube/test_lifecycle.py::test_a[1]", "a second cluster"),
        ("localkube/test_workloads.py::test_b", "a second cluster"),
        ("images/pytorch/test_pytorch.py::test_a", "ranks of images"),
        ("chart/test_scanner.py::test_a", "renders of all cases"),
        ("chart/test_pods.py::test_a[b/c::d]", "tests/chart/test_pods.py"),
        ("unit/hvdchart/test_fuzz.py::test_a", "tests/unit/hvdchart/test_fuzz.py"),
        ("e2e/test_life.py::test_a[helm3]", "tests/e2e/test_life.py::test_a[helm3]"),
        ("faults/test_unet.py::test_a", "tests/faults/test_unet.py::test_a"),
    ],
)
def test_test_is_in_the_group_of_its_resource_or_file_or_alone(test: str, group: str) -> None:
    scheduling = object.__new__(GroupedScheduling)
    assert scheduling._split_scope(f"tests/{test}") == group


@pytest.mark.parametrize("shares", [True, False])
def test_long_tests_begin_first_where_processes_share_them(shares: bool) -> None:
    files = ("chart/b", "e2e/b", "images/b", "images/a", "unit/a", "unit/hvd_pods/worker/ssh/a")
    names = [f"tests/{file}.py::test_a" for file in files]
    items = [SimpleNamespace(nodeid=name) for name in names]
    config = SimpleNamespace(workerinput={}) if shares else SimpleNamespace()
    pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    order = (2, 3, 1, 0, 5, 4) if shares else range(6)
    assert [item.nodeid for item in items] == [names[place] for place in order]


def test_groups_begin_in_this_order_whatever_their_size() -> None:
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(option=option, getvalue=lambda _: ["popen"])
    config.getoption = lambda _: "loadgroup"
    made = pytest_xdist_make_scheduler(config, None)  # type: ignore[arg-type]
    assert isinstance(made, GroupedScheduling)
    assert not option.loadscopereorder
