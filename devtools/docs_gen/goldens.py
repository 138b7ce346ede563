"""Renders every values/*.spec.yaml to the file that the tests compare with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VALUES = Path(__file__).resolve().parents[2] / "values"


def main() -> None:
    """Renders all; stops at the first spec that cannot be rendered."""
    for spec in sorted(VALUES.glob("*.spec.yaml")):
        golden = spec.with_name(spec.name.replace(".spec.yaml", ".yaml"))
        command = [sys.executable, "-m", "hvdchart", "render", str(spec), "-w", str(golden)]
        subprocess.run(command, cwd=VALUES.parent, check=True)


if __name__ == "__main__":
    main()
