"""What the programs need that start for each agent connection and each rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from devtools.pods.program_copies import FILES
from hvd_pods.pod import processes


def test_process_has_its_parent_and_session_whatever_its_name_is() -> None:
    show = "printf 'a) S 1 1 (b' >/proc/self/comm; echo up; read x"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["bash", "-c", show], start_new_session=True, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b"up\n"
        stats = {process.pid: process for process in processes.all_processes()}
        child.communicate()
    process = stats[child.pid]
    assert (process.parent, process.session) == (os.getpid(), child.pid)


def test_process_whose_parent_has_exited_before_ends_at_once() -> None:
    code = f"import os, sys; sys.path.insert(0, {str(FILES)!r})\n"
    code += "from hvd_pods.pod import processes; processes.die_with_parent(os.getpid())"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=False)
    assert done.returncode == 128 + signal.SIGKILL


def test_descendants_come_after_their_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell whose program is killed first would end with 137, or start the next one."""
    rows = [(8, "S", 9, 9), (9, "S", 100, 9), (10, "Z", 9, 9), (11, "S", 1, 11)]
    stats = [processes.ProcessStat(*row, cpu_ticks=0, began="0") for row in rows]
    monkeypatch.setattr(processes, "all_processes", lambda: iter(stats))
    assert list(processes.descendants(100)) == [9, 8]


SLOW = {"argparse", "ast", "dataclasses", "inspect", "pathlib", "shutil", "typing"}


@pytest.mark.parametrize(
    ("program", "slow"), [("master.ssh", SLOW | {"json", "re"}), ("rank.start", SLOW)]
)
def test_programs_of_clients_and_ranks_import_nothing_slow(program: str, slow: set[str]) -> None:
    """Each client of the gateway and each rank would wait for that longer than for the rest."""
    code = f"import sys; sys.path.insert(0, {str(FILES)!r})"
    code += f"; import hvd_pods.{program}; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert f"hvd_pods.{program}" in loaded
    assert not slow & {*loaded}
