"""The progress of a rank on its way to the master: a real sshd, and the command of the master."""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.unit.hvd_pods.worker.ssh.pods import SshPods, unprivileged

pytestmark = pytest.mark.slow

FOLLOW = """
import json, queue
from pathlib import Path
from hvd_pods.master import progress, remote
# In pods both have the same path.
remote.PROGRAMS = Path({worker_files!r}, "hvd_pods")
progress.FIRST_LOOK = 0.0
events = queue.Queue()
follower = progress.ProgressFollower([HOST], events.put, 1)
print(json.dumps(events.get(timeout=40).progress))
follower.close(tells_last=True)
"""


@unprivileged
def test_the_master_has_the_step_that_a_rank_of_the_worker_writes(ssh_pods: SshPods) -> None:
    rank = ssh_pods.worker.root / "metrics" / "0"
    rank.write_text("horovod_step 7\nhorovod_loss 0.5\n")
    # It is written after the ranks were started.
    later = time.time() + 3600
    os.utime(rank, (later, later))
    told = ssh_pods.master.call(FOLLOW.format(worker_files=str(ssh_pods.worker.files)))
    assert [file.name for file in rank.parent.iterdir()] == ["0"], "those of an earlier start"
    assert json.loads(told) == {"step": 7, "loss": 0.5}
