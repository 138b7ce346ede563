"""The CPUs that a rank is bound to."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvd_pods.shared.binding import Binding, BindingError, main, read_topology, select_cpus


def topology(sockets: int, cores: int, threads: int) -> list[list[set[int]]]:
    """As Linux numbers it: the first hyperthread of every core, then the second."""
    total = sockets * cores
    return [
        [
            {core + thread * total for thread in range(threads)}
            for core in range(first, first + cores)
        ]
        for first in range(0, total, cores)
    ]


# The first socket of a node with two sockets of 28 cores and 56 hyperthreads.
SOCKET = {*range(28), *range(56, 84)}


def write_topology(root: Path, cpus: list[tuple[int, int]]) -> None:
    """Write the socket and core of each CPU, as the kernel does."""
    for cpu, (socket, core) in enumerate(cpus):
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (folder / "core_id").write_text(f"{core}\n")


@pytest.mark.parametrize(
    ("asked", "node", "bound"),
    [
        (Binding("core", 28), (2, 28, 2), [SOCKET]),
        (Binding("socket", 0, 1), (2, 28, 2), [SOCKET]),
        (Binding("socket", 0, 2), (2, 2, 1), [{0, 1}, {0, 1}, {2, 3}, {2, 3}]),
        # Four ranks of three cores on two sockets of seven: none of them straddles.
        (Binding("core", 3, 2), (2, 7, 1), [{0, 1, 2}, {3, 4, 5}, {7, 8, 9}, {10, 11, 12}]),
        # Without ranks per socket, ranks take the next cores across sockets.
        (Binding("core", 3), (2, 4, 1), [{0, 1, 2}, {3, 4, 5}]),
    ],
)
def test_ranks_are_bound_by_their_number_on_the_worker(
    asked: Binding, node: tuple[int, int, int], bound: list[set[int]]
) -> None:
    assert [select_cpus(asked, topology(*node), rank) for rank in range(len(bound))] == bound


@pytest.mark.parametrize(
    ("asked", "local_rank", "words"),
    [
        (Binding("core", 3), 2, ["coresPerRank` is 3", "9 cores for 3 ranks", "has 8"]),
        (Binding("core", 3, 2), 1, ["coresPerRank` is 3", "6 cores for 2 ranks", "has 4"]),
        (Binding("socket", 0, 2), 4, ["ranksPerSocket` is 2", "rank 4 needs 3 sockets", "on 2"]),
    ],
)
def test_too_few_cpus_are_refused_with_both_numbers(
    asked: Binding, local_rank: int, words: list[str]
) -> None:
    with pytest.raises(BindingError) as refused:
        select_cpus(asked, topology(2, 4, 1), local_rank)
    assert [word for word in words if word not in str(refused.value)] == []


def test_read_topology_has_the_allowed_cpus_only_in_order(tmp_path: Path) -> None:
    write_topology(tmp_path, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 0)])
    assert read_topology({0, 1, 2, 4, 5}, tmp_path) == [[{0, 4}, {2}], [{1, 5}]]
    assert read_topology({5, 2}, tmp_path) == [[{2}], [{5}]]


def test_read_topology_names_the_cpu_that_the_host_does_not_describe(tmp_path: Path) -> None:
    write_topology(tmp_path, [(0, 0)])
    (tmp_path / "cpu0" / "topology" / "core_id").unlink()
    with pytest.raises(BindingError, match=r"launch\.binding\.to.*CPU 0 .*to none"):
        read_topology({0}, tmp_path)


@pytest.mark.parametrize(("slots", "code"), [(1, 0), (100_000, 78)])
def test_worker_reports_whether_all_its_ranks_can_be_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], slots: int, code: int
) -> None:
    monkeypatch.setenv("HVD_SLOTS", str(slots))
    assert main(["core", "1", "0"]) == code
    assert ("`launch.binding.coresPerRank`" in capsys.readouterr().out) is bool(code)
