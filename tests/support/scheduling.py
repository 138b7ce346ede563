"""Assign tests to processes of pytest-xdist, and set their order.

tests/conftest.py makes it a plugin of pytest.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Folders and files whose tests share a resource that takes long to prepare: one process runs all of
# them.
SHARED_RESOURCES = {
    "tests/images/test_wheels.py": "wheels and defects of Horovod",
    "tests/images/test_mended_defects.py": "wheels and defects of Horovod",
    "tests/images/test_source.py": "source of Horovod",
    "tests/images/": "ranks of images",
    "tests/localkube/": "a second cluster",
    "tests/chart/test_kubernetes_versions.py": "renders of all cases",
    "tests/unit/hvd_pods/worker/agent/": "a worker that serves",
}
# Tests that take long and share no resource: any process runs any of them. The tests of a class,
# which share its fixtures, stay together.
APART = ("tests/e2e/", "tests/faults/")
# The order in which several processes begin tests. Files of a few seconds each are at the end.
ORDER = (
    "tests/images/",
    "tests/localkube/",
    *APART,
    "tests/chart/",
    "tests/unit/hvdchart/calls/",
    "tests/unit/hvd_pods/worker/agent/",
    "tests/unit/hvd_pods/warm/",
    "tests/",
)


def group_of(nodeid: str) -> str:
    """Return the group whose tests run in one process: a shared resource, or the test's file.

    A test of APART is in a separate group, or in the group of its class.
    """
    # The identifier of a parameter may contain any characters.
    owner = nodeid.partition("[")[0].rpartition("::")[0]
    file, _, of_class = owner.partition("::")
    for start, name in SHARED_RESOURCES.items():
        if file.startswith(start):
            return name
    if not file.startswith(APART):
        return file
    return owner if of_class else nodeid


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns the tests of one group to the same process, in ORDER.

    pytest-xdist's own groups do nothing with pytest 9.2: they write to an attribute that it lost.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupedScheduling | None:
    """Replace xdist's own scheduling by groups, which does nothing with pytest 9.2."""
    if config.getoption("dist") != "loadgroup":
        return None
    # xdist would begin with the groups that have the most tests.
    config.option.loadscopereorder = False
    return GroupedScheduling(config, log)


def place_in_order(nodeid: str) -> int:
    """Return the index of the test's folder in ORDER."""
    return next(place for place, start in enumerate(ORDER) if nodeid.startswith(start))


# Run last: no other plugin then moves tests afterwards.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests into ORDER when several processes run them."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_in_order(item.nodeid))
