"""The reduction in shared memory of ranks of one host: docs/performance.md."""

from __future__ import annotations

from pathlib import Path

from devtools.trials.sandbox import OWN_UID, TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox, output_of

SCRIPT = Path(__file__).with_name("shared_memory_ranks.py")
# /dev/shm of the sandbox has 64 MiB, and Horovod needs 5 of them. Python needs a little.
FULL = ("sh", "-c", 'head -c 62M /dev/zero > /dev/shm/full; exec "$@"', "sh")


def results(
    inside: Sandbox, launcher: tuple[str, ...], *case: str, **environment: str
) -> list[str]:
    """What the ranks printed, in the order of the alphabet."""
    (inside.folder / SCRIPT.name).write_text(SCRIPT.read_text())
    command = (*launcher, "python3", f"/output/{SCRIPT.name}", *case)
    done = inside.run(*command, uid=OWN_UID, **environment)
    # Where a rank dies, the launcher fails.
    assert bool(done.returncode) == bool(case), output_of(done)
    lines = done.stdout.splitlines()
    return sorted(line.partition("RESULT ")[2] for line in lines if "RESULT " in line)


def test_results_are_those_of_mpi_and_gloo_and_a_lost_rank_is_noticed(cpu: Sandbox) -> None:
    by_mpi = results(cpu, TWO_RANKS, HOROVOD_SHARED_MEMORY="0")
    digest = by_mpi[0].partition(" ")[2]
    assert by_mpi == [f"False {digest}"] * 2
    assert results(cpu, TWO_RANKS) == [f"True {digest}"] * 2
    # No room for it: Gloo reduces as it did before.
    assert results(cpu, (*FULL, *TWO_RANKS_OVER_GLOO)) == [f"False {digest}"] * 2
    *reduced, lost = results(cpu, TWO_RANKS_OVER_GLOO, "lost")
    assert reduced == [f"True {digest}"] * 2
    # A rank that does not see it would be killed by the launcher.
    assert lost == "lost"
