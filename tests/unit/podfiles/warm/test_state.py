"""Which requests of ranks the warm process grants."""

from __future__ import annotations

import gc
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.warm import state


def request(**changes: Any) -> dict[str, Any]:
    """A rank's request that nothing speaks against."""
    return {
        "descriptors": [0, 1, 2],
        "cpus": sorted(os.sched_getaffinity(0)),
        "environment": {},
        "limits": {},
        "folder": str(Path.cwd()),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        **changes,
    }


@pytest.fixture
def warm_state(monkeypatch: pytest.MonkeyPatch) -> state.WarmState:
    """A warm process of one thread."""
    monkeypatch.setattr(state, "threads", lambda: 1)
    return state.WarmState()


def test_request_without_differences_is_granted(warm_state: state.WarmState) -> None:
    assert warm_state.find_reason(request(), None) is None


@pytest.mark.parametrize(
    ("environment", "libraries", "reason"),
    [
        ({}, "libgomp.so.1", "set OMP_NUM_THREADS"),
        ({}, None, None),
        ({"OMP_NUM_THREADS": "2"}, "libgomp.so.1", None),
        ({"OMP_NUM_THREADS": "2", "OMP_PLACES": "cores"}, "libgomp.so.1", "unset OMP_PLACES"),
    ],
)
def test_bound_rank_must_not_have_counted_other_cpus(
    warm_state: state.WarmState, monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str], libraries: str | None, reason: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(state, "find_library", lambda parts: libraries)
    refusal = warm_state.find_reason(request(cpus=[999], environment=environment), None)
    assert (reason in refusal) if reason and refusal else (refusal == reason)


def test_rank_on_the_cpus_of_the_import_needs_no_other_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "threads", lambda: 1)
    monkeypatch.setattr(state, "find_library", lambda parts: "libgomp.so.1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1} if pid else {3})
    assert state.WarmState().find_reason(request(cpus=[3]), None) is None


@pytest.mark.parametrize(("nice", "refused"), [(6, True), (7, False), (8, False)])
def test_nice_value_can_be_raised_only(
    warm_state: state.WarmState, monkeypatch: pytest.MonkeyPatch, nice: int, refused: bool
) -> None:
    monkeypatch.setattr(os, "getpriority", lambda kind, pid: 0 if pid else 7)
    reason = warm_state.find_reason(request(nice=nice), None)
    assert reason == (f"its nice value is {nice}" if refused else None)


def test_threads_that_an_import_has_started_may_end_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = iter([3, 2, 1])
    monkeypatch.setattr(state, "threads", lambda: next(left))
    assert state._find_threads() is None


def test_loaded_library_is_found_by_a_part_of_its_name() -> None:
    assert "libc" in str(state.find_library(("libc.so", "libc-")))
    assert state.find_library(("no-such-library",)) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nice": -20}, "its nice value is -20"),
        ({"limits": {"RLIMIT_NOFILE": [1, 10**9]}}, "its RLIMIT_NOFILE is 1000000000"),
        (
            {"folder": "/elsewhere", "environment": {"PYTHONPATH": "/a:src"}},
            "PYTHONPATH=/a:src has another meaning in /elsewhere",
        ),
    ],
)
def test_what_a_fork_cannot_take_over_is_named(
    warm_state: state.WarmState, changes: dict[str, Any], reason: str
) -> None:
    assert warm_state.find_reason(request(**changes), None) == reason


def test_descriptor_that_an_import_has_opened_is_not_replaced(
    warm_state: state.WarmState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with (tmp_path / "file").open("w") as file:
        number = os.dup2(file.fileno(), 300)
        state.load([])
        os.close(number)
    with (tmp_path / "of the rank").open("w") as later:
        number_of_the_rank = later.fileno() + 1
        reason = warm_state.find_reason(request(descriptors=[0, number]), None)
        other = warm_state.find_reason(request(descriptors=[0, number_of_the_rank]), None)
    assert reason == f"an imported module uses descriptor {number}"
    assert other is None


def test_garbage_is_not_collected_during_imports(
    warm_state: state.WarmState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    (tmp_path / "looks_at_gc.py").write_text("import gc\nWAS_ENABLED = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    state.load(["looks_at_gc"])
    module = sys.modules.pop("looks_at_gc")
    assert not module.WAS_ENABLED
    # The ranks collect theirs.
    assert gc.isenabled()


def test_module_that_uses_a_gpu_is_not_forked() -> None:
    reason = state._find_gpu({5: "/dev/null", 7: "/dev/nvidia0"})
    assert reason == "an imported module uses the GPU (/dev/nvidia0)"
    assert state._find_gpu({5: "/dev/null", 6: "socket:[1]"}) is None


@pytest.mark.parametrize(
    ("own", "wanted", "refused"),
    [
        (1024, 1024, False),
        (1024, 1023, False),
        (1024, 1025, True),
        (1024, resource.RLIM_INFINITY, True),
        (resource.RLIM_INFINITY, 1025, False),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, False),
    ],
)
def test_hard_limit_can_be_lowered_only(
    warm_state: state.WarmState,
    monkeypatch: pytest.MonkeyPatch,
    own: int,
    wanted: int,
    refused: bool,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1, own))
    reason = warm_state.find_reason(request(limits={"RLIMIT_NOFILE": [9, wanted]}), None)
    assert reason == (f"its RLIMIT_NOFILE is {wanted}" if refused else None)


@pytest.mark.parametrize(
    ("path", "folder"), [("/a:/b", "/elsewhere"), ("", "/elsewhere"), ("src", str(Path.cwd()))]
)
def test_path_that_has_the_same_meaning_is_no_reason(
    warm_state: state.WarmState, path: str, folder: str
) -> None:
    changes = {"environment": {"PYTHONPATH": path}, "folder": folder}
    assert warm_state.find_reason(request(**changes), None) is None


@pytest.mark.parametrize(
    ("entry", "shadows", "shadows_a_part"),
    [
        ("framework.py", True, True),
        ("framework.so", True, True),
        ("framework.cpython-311.pyc", True, True),
        ("framework/__init__.py", True, True),
        # A part of a namespace, which other folders may add to.
        ("framework/model.py", False, True),
        ("framework.txt", False, False),
        ("frameworks.py", False, False),
        ("sys.py", False, False),
    ],
)
def test_module_of_another_folder_takes_precedence(
    warm_state: state.WarmState, tmp_path: Path, entry: str, shadows: bool, shadows_a_part: bool
) -> None:
    state.tops = {"framework", "sys"}
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).touch()
    first = tmp_path / Path(entry).parts[0]
    expected = f"{first} takes precedence over the imported module framework"
    assert state._find_shadow(str(tmp_path)) == (expected if shadows else None)
    part = state._find_shadow(str(tmp_path), is_complete=False)
    assert part == (expected if shadows_a_part else None)


def test_current_folder_is_looked_at_and_a_missing_one_is_not(
    warm_state: state.WarmState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.tops = {"framework"}
    (tmp_path / "framework.py").touch()
    monkeypatch.chdir(tmp_path)
    assert state._find_shadow("")
    assert state._find_shadow(str(tmp_path / "missing")) is None


def test_process_that_ends_the_threads_of_libraries_by_a_fork_is_reaped(
    warm_state: state.WarmState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before ranks are forked: nothing else of the warm process waits for it."""
    forked: list[int] = []
    ended: list[tuple[int, ...]] = []
    fork, wait, here = os.fork, os.waitpid, os.getpid()

    def note_fork() -> int:
        forked.append(fork())
        return forked[0]

    def note_end(pid: int, options: int) -> tuple[int, int]:
        found = wait(pid, options)
        ended.append((options, *found))
        return found

    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(os, "fork", note_fork)
    monkeypatch.setattr(os, "waitpid", note_end)
    state.load([])
    assert forked == [], "there are no threads"
    monkeypatch.setattr(state, "threads", lambda: 2)
    try:
        state.load([])
    finally:
        if os.getpid() != here:
            os._exit(99)
    assert ended == [(0, forked[0], 0)], "it is waited for"


def test_modules_whose_files_change_are_named_but_not_those_of_python(
    warm_state: state.WarmState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rank runs from memory what is another text now."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    file = tmp_path / "changes_later.py"
    file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    state.load(["changes_later"])
    assert str(file) in set(state._own_files())
    assert warm_state.find_reason(request(), None) is None
    changed = f"{file} has changed since it was imported"
    os.utime(file, ns=(1, 1))
    assert warm_state.find_reason(request(), None) == changed
    file.unlink()
    assert warm_state.find_reason(request(), None) == changed
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    assert str(file) not in set(state._own_files())
    del sys.modules["changes_later"]


def test_module_that_cannot_be_imported_is_the_reason_of_all_ranks(
    warm_state: state.WarmState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm process goes on, to tell them."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    (tmp_path / "asks_to_end.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    state.load(["asks_to_end", "no_such_module"])
    reason = "cannot import asks_to_end: SystemExit: 3"
    assert state.problem == reason
    assert warm_state.find_reason(request(), None) == reason
    assert gc.isenabled()
