"""Installing Debian packages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools.common import apt
from devtools.common.errors import ImageError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH whose apt-get writes its arguments, and whether services may start, to a file."""
    policy, program = tmp_path / "policy-rc.d", tmp_path / "apt-get"
    program.write_text(
        "#!/bin/sh\n"
        f'{policy} 2>/dev/null; echo "policy $? $DEBIAN_FRONTEND $*" >> {tmp_path}/calls\n'
        'case "$*" in *broken*) echo "E: no such package"; exit 100;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(apt, "POLICY", policy)
    monkeypatch.setattr(apt, "LOCK", tmp_path / "apt.lock")
    monkeypatch.setattr(apt, "RETRY_SECONDS", 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DEBIAN_FRONTEND", raising=False)
    monkeypatch.setenv("HVD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return tmp_path


def test_packages_are_installed_without_starting_services(machine: Path) -> None:
    apt.install_packages(["one", "two"], ImageError)
    options = "noninteractive -o DPkg::Lock::Timeout=300"
    assert (machine / "calls").read_text().splitlines() == [
        f"policy 127 {options} update",
        f"policy 101 {options} install --yes --no-install-recommends one two",
    ]
    assert not apt.POLICY.exists()


def test_policy_of_an_interrupted_run_is_removed(machine: Path) -> None:
    apt.POLICY.write_text(apt.FORBID_STARTS)
    apt.install_packages(["one"], ImageError)
    assert not apt.POLICY.exists()


def test_policy_of_the_machine_stays(machine: Path) -> None:
    apt.POLICY.write_text("the machine's own")
    apt.install_packages(["one"], ImageError)
    assert apt.POLICY.read_text() == "the machine's own"


def test_failed_installation_raises_the_end_of_its_log(machine: Path) -> None:
    with pytest.raises(ImageError, match=r"status 100\)(.|\n)*E: no such package"):
        apt.install_packages(["broken"], ImageError)
    assert not apt.POLICY.exists()


def test_installation_needs_root_and_apt_get(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="the Debian packages one are missing"):
        apt.install_packages(["one"], ImageError)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (machine / "apt-get").unlink()
    with pytest.raises(ImageError, match="the Debian packages one are missing"):
        apt.install_packages(["one"], ImageError)


def test_two_processes_install_one_after_the_other(machine: Path) -> None:
    """The policy of one must not go while the other installs, nor may both update at once."""
    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(apt.install_packages, [name], ImageError) for name in ("one", "two")]
    for end in ends:
        end.result()
    calls = [line.rsplit(" ", 1)[-1] for line in (machine / "calls").read_text().splitlines()]
    assert calls in (["update", "one", "update", "two"], ["update", "two", "update", "one"])
    assert not apt.POLICY.exists()


def test_update_waits_for_an_apt_get_of_somebody_else(machine: Path) -> None:
    """apt-get update does not wait for the lock of the package lists itself."""
    program = machine / "apt-get"
    once = (
        f"if [ ! -e {machine}/tried ]; then : > {machine}/tried; "
        'echo "E: Could not get lock"; exit 100; fi\n'
    )
    program.write_text(program.read_text().replace("#!/bin/sh\n", "#!/bin/sh\n" + once))
    apt.install_packages(["one"], ImageError)
    calls = [line.rsplit(" ", 1)[-1] for line in (machine / "calls").read_text().splitlines()]
    assert calls == ["update", "one"]
