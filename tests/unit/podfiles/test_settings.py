"""The run as the chart describes it to the master."""

from __future__ import annotations

from tests.unit.podfiles.runs import make_run


def test_hosts_and_ranks_follow_from_the_groups() -> None:
    assert [host.address for host in make_run().hosts] == [
        "hvd-cpu-0.hvd",
        "hvd-cpu-1.hvd",
        "hvd-gpu-0.hvd",
    ]
    assert make_run().ranks == 2 * 2 + 4
