"""Horovod's messages about ranks that have not joined."""

from __future__ import annotations

from hvd_pods.master.stall_reader import MAX_RANKS_PER_SECOND, StallReader
from hvd_pods.shared.launcher_output import split_tag


def test_horovods_messages_about_missing_ranks_are_read_among_other_lines() -> None:
    reader = StallReader(lambda: 0.0)
    lines = [
        "Missing ranks:",
        "0: [not.asked]",
        "[2026] One or more tensors are waiting for remainder of ranks for more than 60 seconds.",
        "a line of another rank",
        "1: [grads/a, grads/b]",
        "2!: [" + "x" * 500 + "]",
        "9" * 5000 + ": [grads]",
        *["another line"] * 30,
        "3: [grads]",
    ]
    answers = [reader.read(line) for line in lines]
    found = [answer for answer in answers if answer]
    assert [(rank, seconds) for rank, _, seconds in found] == [(1, 60.0), (2, 60.0)]
    assert found[0][1] == "has not joined grads/a, grads/b"
    assert len(found[1][1]) < 200


def test_message_whose_pieces_open_mpi_has_tagged_is_read() -> None:
    reader = StallReader(lambda: 0.0)
    tag = "[1,0]<stderr>:"
    lines = [
        f"{tag}[{tag}One or more tensors are waiting for remainder of {tag}ranks for more than 15 "
        f"seconds{tag}.",
        f"{tag}Missing ranks:",
        f"{tag}1: [grads]{tag}",
    ]
    found = [reader.read(split_tag(line)[1]) for line in lines]
    assert found == [None, None, (1, "has not joined grads", 15.0)]


def test_messages_that_a_script_makes_up_cost_the_master_little() -> None:
    """They took it to 407 MiB, and its lease past its end."""
    now = 0.0
    reader = StallReader(lambda: now)
    reader.read("are waiting for remainder of ranks for more than 60 seconds")
    assert (
        sum(reader.read(f"{rank}: [grads]") is not None for rank in range(5000))
        == MAX_RANKS_PER_SECOND
    )
    now = 1.0
    assert reader.read("1: [grads]"), "of the next second"
