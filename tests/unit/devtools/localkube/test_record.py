"""Identifying the processes of a cluster."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil

from devtools.localkube.record import ProcessIdentity


def test_process_with_another_start_or_boot_is_not_the_same() -> None:
    own = ProcessIdentity.of(os.getpid())
    assert own.is_alive()
    # Field 22 of /proc/PID/stat, counted from the end because the command may contain spaces.
    assert own.start == int(Path("/proc/self/stat").read_text().split(")")[-1].split()[19])
    assert not replace(own, start=own.start + 1).is_alive()
    assert not replace(own, boot="another boot").is_alive()


def test_kill_ends_the_recorded_process_and_no_other() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        recorded = ProcessIdentity.of(child.pid)
        replace(recorded, start=recorded.start + 1).kill_and_wait()
        assert child.poll() is None
        recorded.kill_and_wait()
        assert not recorded.is_alive()
    recorded.kill_and_wait()  # does nothing after its end


def test_kill_waits_for_a_process_that_is_not_a_child() -> None:
    script = "sleep 60 >/dev/null 2>&1 & echo $!"
    started = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
    recorded = ProcessIdentity.of(int(started.stdout))
    recorded.kill_and_wait()
    assert not recorded.is_alive()


def test_zombie_is_not_alive() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        recorded = ProcessIdentity.of(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
        assert not recorded.is_alive()
