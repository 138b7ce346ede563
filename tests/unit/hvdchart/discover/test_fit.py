"""The ranks that fit on free nodes beside the pods that run there."""

from __future__ import annotations

import pytest

from hvdchart.errors import ClusterError
from hvdchart.plan.planner import make_plan
from hvdchart.quantity import memory_bytes
from tests.unit.hvdchart.nodes import amd, dgx, discovered, node, pod, xeon


def test_fit_uses_free_nodes_only() -> None:
    nodes = [dgx(f"d{n}") for n in range(4)] + [xeon("x1")]
    busy = [pod("d0", {"nvidia.com/gpu": "4"}), pod("d3", {"nvidia.com/gpu": "8"}, phase="Failed")]
    text, spec = discovered(nodes, busy, fit=16)
    assert [(group.name, group.count) for group in spec.nodes] == [("nvidia-a100-sxm4-80gb", 2)]
    assert make_plan(spec).ranks == 16
    assert "3 of 4 nodes of the group are free now" in text
    assert "d0: 4 nvidia.com/gpu free, 8 needed" in text


def test_spares_are_kept_of_each_group_that_has_enough_nodes() -> None:
    nodes = [*(dgx(f"d{n}") for n in range(3)), xeon("x1")]
    text, spec = discovered(nodes, spares=1)
    assert [(group.count, group.spares) for group in spec.nodes] == [(2, 1), (1, 0)]
    assert "  count: 2\n    spares: 1\n" in text.replace("    count", "  count")
    with pytest.raises(ClusterError, match=r"no group has more than 3 nodes, the spares \(.*: 3"):
        discovered(nodes, spares=3)


def test_fit_keeps_free_nodes_as_spares() -> None:
    nodes = [dgx(f"d{n}") for n in range(4)]
    busy = [pod("d0", {"nvidia.com/gpu": "4"})]
    text, spec = discovered(nodes, busy, fit=16, spares=1)
    assert [(group.count, group.spares) for group in spec.nodes] == [(2, 1)]
    assert "3 of 4 nodes are free, 16 ranks and 1 spare (" in text
    with pytest.raises(ClusterError, match="24 ranks do not fit now: there is room for 16"):
        discovered(nodes, busy, fit=24, spares=1)
    with pytest.raises(ClusterError, match="8 ranks do not fit now: there is room for 0"):
        discovered(nodes, busy, fit=8, spares=4)


def test_fit_combines_groups_of_one_kind() -> None:
    _, spec = discovered([xeon("x1"), xeon("x2", "191000Mi")], fit=4)
    assert [group.count for group in spec.nodes] == [1, 1]
    assert make_plan(spec).ranks == 4


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (32, "32 ranks do not fit now: there is room for 24"),
        (33, "33 ranks do not fit now: there is room for 24"),
        (12, "12 ranks do not fit: each node runs 8 ranks"),
    ],
)
def test_ranks_that_do_not_fit_are_refused_with_the_reasons(ranks: int, message: str) -> None:
    busy = [pod("d0", {"cpu": "200"})]
    with pytest.raises(ClusterError) as refused:
        discovered([dgx(f"d{n}") for n in range(4)], busy, fit=ranks)
    assert message in str(refused.value)
    assert "d0: 55500m cpu free, 255 needed" in str(refused.value)


@pytest.mark.parametrize(
    ("requests", "free"),
    [
        ({"cpu": "300"}, "0 cpu free, 255 needed"),
        ({"memory": "100Gi"}, "1958505Mi memory free, "),
        ({"memory": "3Ti"}, "0Gi memory free, "),
        ({"nvidia.com/gpu": "9"}, "0 nvidia.com/gpu free, 8 needed"),
    ],
)
def test_node_that_is_used_has_less_or_nothing_left(requests: dict[str, str], free: str) -> None:
    text, _ = discovered([dgx("d0")], [pod("d0", requests)])
    assert f"(d0: {free}" in text


def test_fit_fills_the_larger_nodes_first() -> None:
    small = [node(f"s{n}", "8", "32Gi", devices={"nvidia.com/gpu": "4"}) for n in (1, 2)]
    nodes = [*small, amd("a1")]
    for ranks, counts in ((8, {8: 1}), (12, {8: 1, 4: 1})):
        _, spec = discovered(nodes, fit=ranks)
        assert {group.gpus: group.count for group in spec.nodes} == counts


def test_planned_worker_fits_an_idle_node() -> None:
    """The reserve that discover writes leaves room for daemons, kubelet and master."""
    daemons = [pod("x1", {"cpu": "750m", "memory": "900Mi"}, "DaemonSet")]
    machine = xeon("x1", allocatable=("110", "390000Mi"))
    _, spec = discovered([machine], daemons, fit=2)
    plan = make_plan(spec).groups[0]
    assert plan.cpu is not None
    assert plan.memory is not None
    assert plan.cpu + 750 + 100 <= 110_000
    assert plan.memory + memory_bytes("1156Mi") <= memory_bytes("390000Mi")


def test_fit_prefers_a_group_with_gpus() -> None:
    # One CPU node would do, and so would a GPU node, which comes second for its many CPUs.
    _, spec = discovered([dgx("g1"), *(xeon(f"x{n}") for n in range(4))], fit=8)
    assert [group.name for group in spec.nodes] == ["nvidia-a100-sxm4-80gb"]


def test_names_of_a_group_are_shortened() -> None:
    text, _ = discovered([xeon(f"x{n}") for n in range(6)])
    assert "# x0, x1, x2, x3 and 2 more" in text
    busy = [pod(f"x{n}", {"cpu": "100"}) for n in range(5)]
    text, _ = discovered([xeon(f"x{n}") for n in range(6)], busy)
    assert "# cpu: 1 of 6 nodes are free, 2 ranks (x0: " in text
    assert text.count(" cpu free") == 3
    assert " and 2 more)" in text


def test_fit_prefers_groups_with_gpus() -> None:
    # 16 ranks need two groups, of either kind.
    cpus = [xeon(f"x{n}") for n in range(4)] + [xeon(f"y{n}", "191000Mi") for n in range(4)]
    _, spec = discovered([dgx("g1"), amd("a1"), *cpus], fit=16)
    assert [bool(group.gpus) for group in spec.nodes] == [True, True]


@pytest.mark.parametrize("ranks", [9, 12])
def test_only_nodes_that_divide_the_ranks_unequally_are_named(ranks: int) -> None:
    nodes = [*(dgx(f"d{n}") for n in range(3)), xeon("x1")]
    number = "8" if ranks % 2 == 0 else "2 or 8"
    with pytest.raises(ClusterError, match=f"{ranks} ranks do not fit: each node runs {number} "):
        discovered(nodes, fit=ranks)
