"""What the developer tools share: cache keys, commands, waiting, Debian packages, messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common import apt
from devtools.common.cache import content_key
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.waiting import holds_within, wait_until


def key(folder: Path, *extra: str, **files: str) -> str:
    """The key of a module with these files in the folder."""
    module = folder / "module"
    module.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (module / name).write_text(text)
    return content_key([module], *extra)


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says whether services may start. A stand-in for apt-get prints what it says."""
    policy = tmp_path / "policy-rc.d"
    program = tmp_path / "apt-get"
    program.write_text(
        f'#!/bin/sh\n{policy}; echo "policy $?"\n'
        'case "$*" in *broken*) echo "E: no such package"; exit 100;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(apt, "POLICY", policy)
    monkeypatch.setattr(apt, "APT_LOCK_FILE", tmp_path / "apt.lock")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return policy


def test_key_depends_neither_on_the_place_nor_on_the_order_of_files(tmp_path: Path) -> None:
    before = key(tmp_path / "a", one="1", two="2")
    assert key(tmp_path / "b", two="2", one="1") == before


def test_key_does_not_depend_on_what_python_has_compiled(tmp_path: Path) -> None:
    before = key(tmp_path, one="1")
    compiled = tmp_path / "module" / "__pycache__" / "one.pyc"
    compiled.parent.mkdir()
    compiled.touch()
    assert key(tmp_path) == before


def test_key_changes_with_every_name_and_byte(tmp_path: Path) -> None:
    keys = {
        key(tmp_path / "a", one="1", two="2"),
        key(tmp_path / "b", one="1", two="3"),
        key(tmp_path / "c", one="1", other="2"),
        key(tmp_path / "d", one="1"),
        # A byte that moved from one file to the other.
        key(tmp_path / "e", one="12", two=""),
    }
    assert len(keys) == 5


def test_key_changes_with_each_extra_word(tmp_path: Path) -> None:
    words: list[list[str]] = [[], ["a"], ["b"], ["a", "b"], ["ab"]]
    assert len({key(tmp_path, *extra, one="1") for extra in words}) == len(words)


def test_key_of_a_path_that_is_absent_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        content_key([tmp_path / "absent"])


def test_failed_command_raises_its_status_its_errors_and_a_remedy() -> None:
    expected = r"^`sh -c .*` failed \(status 3\): broken\n  remedy: r$"
    with pytest.raises(DevtoolsError, match=expected):
        read_output(["sh", "-c", "echo printed; echo broken >&2; exit 3"], remedy="r")


def test_state_that_does_not_come_is_named() -> None:
    assert not holds_within(lambda: False, 0.01)
    with pytest.raises(AssertionError, match=r"0\.01 s: the end$"):
        wait_until(lambda: False, 0.01, "the end")


def test_assertion_of_a_condition_ends_the_wait_at_once() -> None:
    def condition() -> None:
        raise AssertionError("the process has ended")

    with pytest.raises(AssertionError, match="the process has ended"):
        holds_within(condition, 60)


def test_packages_are_installed_without_starting_services(policy: Path, tmp_path: Path) -> None:
    # Of an interrupted run.
    policy.write_text(apt.FORBID_STARTS)
    apt.install_packages(["one"])
    assert "policy 101" in (tmp_path / "logs" / "packages.log").read_text()
    assert not policy.exists()


def test_policy_of_the_machine_is_kept_also_by_an_install_that_fails(policy: Path) -> None:
    policy.write_text("the machine's own")
    with pytest.raises(DevtoolsError, match=r"status 100\)(.|\n)*E: no such package"):
        apt.install_packages(["broken"])
    assert policy.read_text() == "the machine's own"
