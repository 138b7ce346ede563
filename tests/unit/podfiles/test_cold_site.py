"""What a script that fails leaves of the chart in its process, however the notice goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hvd_pods.rank import child_rank
from hvd_pods.rank.ranks import STACK_SIGNAL

pytestmark = pytest.mark.slow

# As when the user interrupts the rank at that moment.
INTERRUPTED = """
import sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "exception_notice":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
raise ValueError("x")
"""
LOOKS = """
import atexit, sys
names = {"basics", "exception_notice", "fence", "hints", "notices"}
atexit.register(lambda: print(sorted(names & {*sys.modules})))
raise ValueError("x")
"""


def run(tmp_path: Path, script: str) -> tuple[int, str, str]:
    """Run a script as a rank that starts cold; its exit code, and what it prints."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").symlink_to(Path(child_rank.__file__).with_name("cold_site.py"))
    variables = {"PYTHONPATH": str(folder), "HVD_SITE": f"2 {int(STACK_SIGNAL)} 0"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_notice_that_is_interrupted_does_not_change_how_the_rank_ends(tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, INTERRUPTED)
    assert code == 1
    assert errors.startswith("Traceback (most recent call last)")
    assert errors.endswith("ValueError: x\n")
    assert "excepthook" not in errors


def test_modules_of_the_chart_are_gone_when_the_script_goes_on(tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, LOOKS)
    assert (code, output) == (1, "[]\n"), errors
