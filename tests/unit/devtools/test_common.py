"""What the developer tools share: cache keys, commands, locks, Debian packages, messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common import apt
from devtools.common.cache import content_key
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError


def test_key_changes_with_every_name_and_byte_and_with_nothing_else(tmp_path: Path) -> None:
    def key(folder: str, *extra: str, **files: str) -> str:
        module = tmp_path / folder / "module"
        module.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (module / name).write_text(text)
        return content_key([module], *extra)

    before = key("a", one="1", two="2")
    (tmp_path / "a" / "module" / "__pycache__").mkdir()
    (tmp_path / "a" / "module" / "__pycache__" / "one.pyc").touch()
    assert key("a") == key("b", two="2", one="1") == before
    others = [
        key("c", one="1", two="3"),
        key("d", one="1", other="2"),
        key("e", one="1"),
        # A byte that moved from one file to the other.
        key("f", one="12", two=""),
        *(key("a", *extra) for extra in (["a"], ["b"], ["a", "b"], ["ab"])),
    ]
    assert len({before, *others}) == 9
    with pytest.raises(FileNotFoundError, match="absent"):
        content_key([tmp_path / "absent"])


def test_failed_command_raises_its_status_its_errors_and_a_remedy() -> None:
    expected = r"^`sh -c .*` failed \(status 3\): broken\n  remedy: r$"
    with pytest.raises(DevtoolsError, match=expected):
        read_output(["sh", "-c", "echo printed; echo broken >&2; exit 3"], remedy="r")


def test_packages_are_installed_without_starting_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    program = tmp_path / "apt-get"
    # Prints whether services may start.
    program.write_text(
        f'#!/bin/sh\n{policy}; echo "policy $?"\n'
        'case "$*" in *broken*) echo "E: no such package"; exit 100;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(apt, "POLICY", policy)
    monkeypatch.setattr(apt, "LOCK", tmp_path / "apt.lock")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    # Of an interrupted run.
    policy.write_text(apt.FORBID_STARTS)
    apt.install_packages(["one"])
    assert "policy 101" in (tmp_path / "logs" / "packages.log").read_text()
    assert not policy.exists()
    policy.write_text("the machine's own")
    with pytest.raises(DevtoolsError, match=r"status 100\)(.|\n)*E: no such package"):
        apt.install_packages(["broken"])
    assert policy.read_text() == "the machine's own"
