"""Shows which defects the tests of one module would not notice, with cosmic-ray.

`make mutation MODULE=hvdchart/plan/rules.py TESTS=tests/unit/hvdchart/plan` makes one defect at a
time in a copy of this tree, runs the tests there, and prints the defects that no test noticed. The
report is to learn from: no number in it is required. Tests of defective programs run as this user.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Seconds after which the tests of one defect count as failed.
TIMEOUT = 120.0
CONFIGURATION = """\
[cosmic-ray]
module-path = "{module}"
timeout = {timeout}
excluded-modules = []
test-command = "{python} -m pytest -x -q -p no:cacheprovider {tests}"
distributor.name = "local"
"""


def copy_tree(folder: Path) -> None:
    """Copies what git knows of this tree, and the files that it would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def main(module: str, *tests: str) -> None:
    """Tries all defects of a module with these tests, and prints those that survive."""
    bin_folder = Path(sys.executable).parent
    with tempfile.TemporaryDirectory(prefix="hvd-mutation-") as name:
        folder = Path(name)
        copy_tree(folder)
        (folder / "mutation.toml").write_text(
            CONFIGURATION.format(
                module=module, timeout=TIMEOUT, python=sys.executable, tests=" ".join(tests)
            )
        )
        files = ("mutation.toml", "mutation.sqlite")
        for command in (
            ("cosmic-ray", "baseline", "mutation.toml"),
            ("cosmic-ray", "init", *files),
            ("cosmic-ray", "exec", *files),
            ("cr-report", "mutation.sqlite", "--show-diff", "--surviving-only"),
        ):
            subprocess.run([bin_folder / command[0], *command[1:]], cwd=folder, check=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("use: make mutation MODULE=hvdchart/plan/rules.py TESTS=tests/unit/hvdchart/plan")
    main(*sys.argv[1:])
