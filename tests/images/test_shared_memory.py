"""The reduction in shared memory of ranks of one host: docs/performance.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.sandboxes import printed_by_ranks, put_files
from tests.support.in_image.sandbox import (
    OWN_UID,
    TWO_RANKS,
    TWO_RANKS_OVER_GLOO,
    Sandbox,
    output_of,
)

SCRIPT = Path(__file__).with_name("shared_memory_ranks.py")
# /dev/shm of the sandbox has 64 MiB, and Horovod needs 5 of them. Python needs a little.
FULL = ("sh", "-c", 'head -c 62M /dev/zero > /dev/shm/full; exec "$@"', "sh")


def results(
    inside: Sandbox, launcher: tuple[str, ...], *case: str, **environment: str
) -> list[str]:
    """What the ranks printed, in the order of the alphabet."""
    command = (*launcher, "python3", put_files(inside, SCRIPT), *case)
    done = inside.run(*command, uid=OWN_UID, **environment)
    # Where a rank dies, the launcher fails.
    assert bool(done.returncode) == bool(case), output_of(done)
    return sorted(printed_by_ranks(done.stdout))


@pytest.fixture(scope="module")
def digest(cpu: Sandbox) -> str:
    """Of the results over MPI, on both ranks."""
    first, second = results(cpu, TWO_RANKS, HOROVOD_SHARED_MEMORY="0")
    assert first == second
    used, _, digest = first.partition(" ")
    assert used == "False", "the ranks reduced in shared memory"
    return digest


def test_results_are_those_of_mpi(cpu: Sandbox, digest: str) -> None:
    assert results(cpu, TWO_RANKS) == [f"True {digest}"] * 2


def test_gloo_reduces_as_before_where_there_is_no_room(cpu: Sandbox, digest: str) -> None:
    assert results(cpu, (*FULL, *TWO_RANKS_OVER_GLOO)) == [f"False {digest}"] * 2


def test_lost_rank_is_noticed(cpu: Sandbox, digest: str) -> None:
    *reduced, lost = results(cpu, TWO_RANKS_OVER_GLOO, "lost")
    assert reduced == [f"True {digest}"] * 2
    # A rank that does not see it would be killed by the launcher.
    assert lost == "lost"
