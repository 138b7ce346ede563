"""The command `python -m images`: what it says of wrong use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from devtools.common.repository import ROOT


def test_source_for_a_missing_folder_is_refused_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "images", "sdist", str(tmp_path / "missing")],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert str(tmp_path / "missing") in done.stderr
    assert "Traceback" not in done.stderr
