"""The checks of the machine, and the Debian packages that are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.common.errors import LocalkubeError
from devtools.localkube import debian, preflight
from devtools.localkube.instance import Instance

HVD = Instance("hvd")


def test_too_little_space_raises_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    monkeypatch.setitem(preflight.NEEDED_SPACE, "store", 1 << 60)
    with pytest.raises(LocalkubeError, match=r"GB free, .* GB needed.*\n.*HVD_CACHE"):
        preflight.check_space(HVD)


def test_file_system_without_overlay_support_raises_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    device = tmp_path.stat().st_dev
    line = f"30 1 {os.major(device)}:{os.minor(device)} / / rw - {{kind}} none rw\n"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(line.format(kind="ext4"))
    preflight.check_file_system(HVD, mounts)
    mounts.write_text(line.format(kind="overlay"))
    with pytest.raises(LocalkubeError, match=r"\(overlay\)"):
        preflight.check_file_system(HVD, mounts)


def test_packages_without_their_programs_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "containerd" in debian.missing_packages()
    assert "util-linux" in debian.missing_packages()
