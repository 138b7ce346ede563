"""Defects of Horovod 0.28.1 that were reported upstream, on two ranks: docs/runtime.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.sandboxes import printed_by_ranks, put_files, put_hosts
from tests.support.in_image.checks import STALLS, WITH_TF_KERAS
from tests.support.in_image.sandbox import OWN_UID, TWO_RANKS, Sandbox

HERE = Path(__file__).parent
SCRIPT = HERE / "mended_defects_ranks.py"
TRAINING = HERE / "elastic_ranks.py"
# Both use the blacklist as it is by default.
ELASTIC = ("horovodrun", "--host-discovery-script", "/output/hosts", "--network-interface", "lo")
GROWS = (*ELASTIC, "-np", "1", "--min-np", "1", "--max-np", "2")
NEEDS_TWO = (*ELASTIC, "-np", "2", "--min-np", "2", "--max-np", "2")


def results(
    inside: Sandbox, launcher: tuple[str, ...], case: str, *hosts: str, **environment: str
) -> list[str]:
    """What each rank that came to the end printed."""
    put_hosts(inside, *hosts)
    command = (*launcher, "python3", put_files(inside, SCRIPT, TRAINING), case)
    return printed_by_ranks(inside.succeed(*command, uid=OWN_UID, **STALLS, **environment))


def test_dense_and_sparse_gradients_are_reduced_in_one_group(cpu: Sandbox) -> None:
    """horovod#3994 and its fix, #3995."""
    expected = "[[2.0, 2.0, 2.0], [[1.0, 1.0], [1.0, 1.0]]]"
    assert results(cpu, TWO_RANKS, "grouped_dense_and_sparse_gradients") == [expected] * 2


@pytest.mark.parametrize(
    ("case", "expected", "environment"),
    [
        ("variables_of_a_rank_that_joins", "[6, 6.0]", {}),
        ("optimizer_of_a_rank_that_joins", "[6, 6]", WITH_TF_KERAS),
    ],
)
def test_rank_joins(cpu: Sandbox, case: str, expected: str, environment: dict[str, str]) -> None:
    """The symptom of horovod#2652."""
    assert results(cpu, GROWS, case, "localhost", **environment) == [expected] * 2


def test_ranks_that_have_no_work_do_not_poll_for_each_other(cpu: Sandbox) -> None:
    """In Horovod 0.28.1, one polled in each cycle of 50 ms for another that was late once."""
    taken = results(cpu, TWO_RANKS, "ranks_without_work", HOROVOD_CYCLE_TIME="50")
    assert [float(share) < 0.3 for share in taken] == [True] * 2


@pytest.mark.parametrize("case", ["rank_lost_beside_process_sets", "rank_lost_while_ranks_meet"])
def test_run_continues_with_the_host_of_a_lost_rank(cpu: Sandbox, case: str) -> None:
    """horovod#4021, horovod#2484; the host is used again as it is by default: horovod#1926.

    What was mended there is common to all frameworks.
    """
    hosts = ("localhost", "127.0.0.1")
    soon = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "20"}
    assert results(cpu, NEEDS_TWO, case, *hosts, **soon) == ["[6, [2, 2]]"] * 2
