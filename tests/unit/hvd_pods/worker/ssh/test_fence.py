"""Two masters and one worker: a real sshd and a real ssh."""

from __future__ import annotations

from subprocess import PIPE

import pytest

from tests.unit.hvd_pods.worker.ssh.pods import WORKER, SshPods, unprivileged

pytestmark = pytest.mark.slow


@unprivileged
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


@unprivileged
def test_ranks_that_left_their_session_are_ended_before_the_next_attempt_begins(
    ssh_pods: SshPods,
) -> None:
    """As mpirun's daemon does; a terminal's end does not reach it."""
    log = ssh_pods.worker.generated / "detached"
    left = f"setsid sh -c 'trap \"\" HUP TERM; echo up; exec sleep 61' >{log} 2>&1 & "
    left += f"until grep -q up {log}; do :; done"
    assert ssh_pods.master.ssh(WORKER, left, HVD_EPOCH="200").returncode == 0
    find = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done"
    same = ssh_pods.master.ssh(WORKER, find, HVD_EPOCH="200").stdout
    assert b"sleep 61" in same
    following = ssh_pods.master.ssh(WORKER, find, HVD_EPOCH="201").stdout
    assert b"session.py" in following or b"sshd" in following, "processes are shown"
    assert b"sleep 61" not in following
