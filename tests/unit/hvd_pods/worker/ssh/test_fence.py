"""Two masters and one worker: a real sshd and a real ssh."""

from __future__ import annotations

import os
from subprocess import PIPE

import pytest

from tests.unit.hvd_pods.worker.ssh.pods import WORKER, SshPods

pytestmark = pytest.mark.slow


def test_a_newer_master_ends_the_ranks_of_the_older_one_which_is_then_refused(
    ssh_pods: SshPods,
) -> None:
    new = ssh_pods.add_master("newer")
    old = ssh_pods.master.start(
        *ssh_pods.master.ssh_command(WORKER, "echo $HVD_EPOCH; sleep 60"),
        env={"PATH": "/usr/bin:/bin", "HVD_EPOCH": "100"},
        stdout=PIPE,
        stderr=PIPE,
    )
    with old:
        assert old.stdout is not None
        assert old.stdout.readline() == b"100\n"
        assert new.ssh(WORKER, "echo $HVD_EPOCH", HVD_EPOCH="101").stdout == b"101\n"
        assert old.wait(60) != 0, "its rank goes on"
    refused = ssh_pods.master.ssh(WORKER, "echo trained", HVD_EPOCH="100")
    assert refused.returncode == 1
    assert refused.stdout == b""
    assert b"refused: this master's epoch is 100, but a newer master" in refused.stderr
    assert new.ssh(WORKER, "true", HVD_EPOCH="101").returncode == 0


@pytest.mark.parametrize("environment", ["", "env -i "], ids=["", "without its environment"])
def test_ranks_that_left_their_session_are_ended_before_the_next_attempt_begins(
    ssh_pods: SshPods, environment: str
) -> None:
    """As mpirun's daemon does; a terminal's end does not reach it."""
    epoch = 300 if environment else 200
    sleep = f"sleep 61.{os.getpid()}{epoch}"
    log = ssh_pods.worker.generated / f"detached-{epoch}"
    left = f"{environment}/usr/bin/setsid sh -c 'trap \"\" HUP TERM; echo up; exec {sleep}' "
    left += f">{log} 2>&1 & until grep -q up {log}; do :; done"
    assert ssh_pods.master.ssh(WORKER, left, HVD_EPOCH=str(epoch)).returncode == 0
    find = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done"
    same = ssh_pods.master.ssh(WORKER, find, HVD_EPOCH=str(epoch)).stdout
    assert sleep.encode() in same
    following = ssh_pods.master.ssh(WORKER, find, HVD_EPOCH=str(epoch + 1)).stdout
    assert b"session.py" in following or b"sshd" in following, "processes are shown"
    assert sleep.encode() not in following
