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
from tests.unit.podfiles.copies import FILES


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


def test_program_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert fast_start.which("sh") in ("/bin/sh", "/usr/bin/sh")


def test_names_in_a_folder_that_is_missing_are_none(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert fast_start.list_names(tmp_path) == ["a"]
    assert fast_start.list_names(tmp_path / "missing") == []


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


def test_process_that_ends_meanwhile_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(2**22 + 1), "self", str(os.getpid())]
    monkeypatch.setattr(fast_start, "list_names", lambda folder: names)
    assert [process[0] for process in fast_start.processes()] == [os.getpid()]


# linux/prctl.h: PR_GET_PDEATHSIG and PR_GET_CHILD_SUBREAPER.
OPTIONS = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from hvd_pods.common import fast_start as basics
basics.die_with_parent(os.getppid())
basics.set_process_option(basics.PR_SET_CHILD_SUBREAPER, 1)
for option in (2, 37):
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(option, ctypes.byref(found))
    print(found.value, flush=True)
try:
    basics.set_process_option(-1, 0)
except OSError as problem:
    print(problem.errno, problem.strerror, flush=True)
basics.die_with_parent(os.getpid())
print("goes on")
"""


def test_process_dies_with_its_parent_and_takes_orphans() -> None:
    command = [sys.executable, "-I", "-S", "-c", OPTIONS, str(FILES)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.stdout.splitlines() == ["9", "1", f"{errno.EINVAL} {os.strerror(errno.EINVAL)}"]
    assert done.returncode == 128 + signal.SIGKILL, "its parent had died before"


def test_wrong_configuration_has_the_exit_code_that_the_job_knows() -> None:
    assert fast_start.BAD_CONFIGURATION == 78


@pytest.mark.parametrize("module", ["common.fast_start", "worker.session"])
def test_what_only_annotations_use_is_not_imported(module: str) -> None:
    """Each SSH session would wait for it."""
    code = f"import sys; sys.path.insert(0, {str(FILES)!r}); import hvd_pods.{module}"
    code += "; sys.exit('typing' in sys.modules)"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code], check=False).returncode == 0
