"""Where a rank is, and on which CPUs."""

from __future__ import annotations

import pytest
import rank
from hypothesis import given
from hypothesis import strategies as st

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def test_a_rank_in_its_place() -> None:
    place = rank.find_place(OPEN_MPI)
    assert place == rank.Place(3, 8, 1, 2)
    assert rank.problem(place, 8, "2") is None


@pytest.mark.parametrize(
    ("changes", "slots", "words"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "2", "2 ranks, the hosts' slots add up to 8"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, "2", "8 ranks were put on this host"),
        ({}, None, "not a worker"),
    ],
)
def test_a_rank_out_of_place(changes: dict[str, str], slots: str | None, words: str) -> None:
    problem = rank.problem(rank.find_place({**OPEN_MPI, **changes}), 8, slots)
    assert problem is not None
    assert words in problem


def test_a_rank_of_no_known_launcher() -> None:
    assert rank.find_place({"RANK": "0"}) is None
    assert "no known launcher" in str(rank.problem(None, 8, "2"))


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_name_every_cpu_once(cpus: set[int]) -> None:
    named: list[int] = []
    for part in rank.cpu_list(cpus).split(","):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(cpus)
