"""What the programs need that start for each session and each rank."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_pods.common import fast_start
from tests.unit.hvd_pods.copies import FILES


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders on PATH, of which the second has the program, and other things of that name."""
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
    (tmp_path / "first" / "train").write_text("no program")
    (tmp_path / "first" / "folder").mkdir()
    for name in ("second", "third"):
        (tmp_path / name / "train").touch(0o755)
    paths = [tmp_path / name for name in ("missing", "first", "second", "third")]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, paths)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_program_is_found_as_shells_find_it(folders: Path) -> None:
    assert fast_start.which("train") == str(folders / "second" / "train")
    assert fast_start.which("third/train") == "third/train"
    assert fast_start.which("first/train") is None, "it cannot be executed"
    assert fast_start.which("folder") is None
    assert fast_start.which("no-such-program") is None


def test_processes_have_their_parents_and_sessions() -> None:
    """Also one with spaces and parentheses in its name."""
    name = "a) S 1 1 (b"
    rename = f"printf '{name}' >/proc/self/comm; echo up; read x"
    command = ["bash", "-c", rename]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, start_new_session=True, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b"up\n"
        processes = {process[0]: process[1:] for process in fast_start.processes()}
        child.communicate()
    assert processes[child.pid][1:] == (os.getpid(), child.pid)
    assert processes[child.pid][0] in "RS"
    assert processes[os.getpid()][1:] == (os.getppid(), os.getsid(0))


# linux/prctl.h: PR_GET_PDEATHSIG and PR_GET_CHILD_SUBREAPER.
OPTIONS = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from hvd_pods.common import fast_start
from hvd_pods.common import fast_start as basics
fast_start.die_with_parent(os.getppid())
fast_start.set_process_option(fast_start.PR_SET_CHILD_SUBREAPER, 1)
for option in (2, 37):
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(option, ctypes.byref(found))
    print(found.value, flush=True)
try:
    fast_start.set_process_option(-1, 0)
except OSError as problem:
    print(problem.errno, problem.strerror, flush=True)
fast_start.die_with_parent(os.getpid())
print("goes on")
"""


def test_process_dies_with_its_parent_and_takes_orphans() -> None:
    command = [sys.executable, "-I", "-S", "-c", OPTIONS, str(FILES)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.stdout.splitlines() == ["9", "1", f"{errno.EINVAL} {os.strerror(errno.EINVAL)}"]
    assert done.returncode == 128 + signal.SIGKILL, "its parent had died before"


SLOW = {"argparse", "ast", "dataclasses", "inspect", "pathlib", "shutil", "typing"}


@pytest.mark.parametrize(
    ("program", "slow"),
    [("worker.session", SLOW | {"json", "re"}), ("rank.start", SLOW)],
)
def test_programs_of_sessions_and_ranks_import_nothing_slow(program: str, slow: set[str]) -> None:
    """Each session and each rank would wait for that longer than for all the rest."""
    code = f"import sys; sys.path.insert(0, {str(FILES)!r})"
    code += f"; import hvd_pods.{program}; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "hvd_pods.common.fence" in loaded
    assert not slow & {*loaded}
