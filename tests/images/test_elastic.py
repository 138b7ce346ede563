"""What ended an elastic run in Horovod 0.28.1, or kept it waiting: images/patches/elastic.patch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images.builder.catalogue import Image
from tests.images.sandboxes import put_files, put_hosts
from tests.support.in_image.sandbox import OWN_UID, Sandbox

HERE = Path(__file__).parent
# Two hosts, as the driver sees it. The run needs both, and the one that fails comes back.
ELASTIC = (
    "horovodrun",
    "-np",
    "2",
    "--min-np",
    "2",
    "--max-np",
    "2",
    "--host-discovery-script",
    "/output/hosts",
    "--blacklist-cooldown-range",
    "1",
    "2",
    "--network-interface",
    "lo",
    # Tuning begins after few steps, and is not over when the rank is lost.
    "--autotune",
    "--autotune-warmup-samples",
    "1",
    "--autotune-steps-per-sample",
    "1",
)
pytestmark = pytest.mark.patch("elastic.patch")


def test_driver_replaces_processes_that_have_ended_and_all_ranks_synchronize(
    inside: Sandbox,
) -> None:
    said = inside.python((HERE / "elastic_driver.py").read_text())
    assert json.loads(said.partition("RESULT ")[2]) == {
        "failed_host_gets_processes_again": [["b0", "b1"], 0],
        "process_that_ends_while_the_driver_waits_for_its_host_is_replaced": [["b0"], 0],
        "a_rank_0_that_does_not_answer_keeps_no_other_waiting": True,
        "ranks_synchronize_after_hosts_were_removed": [
            "sync",
            "train",
            "save",
            "meet",
            "on_reset",
            "sync",
            "train",
        ],
        "hosts_that_change_while_ranks_meet_are_heard_of": [
            "train",
            "meet",
            "train",
            "meet",
            "train",
        ],
    }


def test_training_continues_after_a_rank_was_lost_that_it_cannot_do_without(
    image: Image, inside: Sandbox
) -> None:
    """A grouped allreduce fails, the host gets a process again, and autotuning begins anew."""
    put_hosts(inside, "localhost", "127.0.0.1")
    ranks = ("python3", put_files(inside, HERE / "elastic_ranks.py"), str(image.framework))
    assert "DONE 60 [2, 2]" in inside.succeed(*ELASTIC, *ranks, uid=OWN_UID)
