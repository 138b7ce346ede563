"""What a launcher's error output tells, whatever its order, and when it does not end."""

from __future__ import annotations

import os

from hvd_pods.master.failure import ErrorOutput
from tests.unit.hvd_pods.master.test_failure import PEER, TYPE_ERROR, cause


def test_rank_that_lost_its_peer_may_be_the_first_to_print_it() -> None:
    result = cause(PEER + TYPE_ERROR)
    assert result
    assert result.text == "a rank: TypeError: 'list' object is not callable, train.py:94"
    assert result.is_sure_to_repeat


def test_output_that_outlives_the_launcher_does_not_keep_the_master_running() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source:
        output = ErrorOutput(source, writer)
        assert output._thread.daemon, "the master cannot end before the last process with the pipe"
        os.close(writer)
        output._thread.join(60)
        assert not output._thread.is_alive(), "the end of the output was not seen"
