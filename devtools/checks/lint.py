"""Every static check of the repository, all run, all their findings shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from devtools.toolchain.tools import tool

ROOT = Path(__file__).resolve().parents[2]
POD_FILES = ROOT / "charts" / "horovod" / "files"


def checks() -> dict[str, list[str]]:
    """Name -> command line."""
    python = sys.executable
    return {
        "ruff": [python, "-m", "ruff", "check", "--quiet", "."],
        "ruff format": [python, "-m", "ruff", "format", "--check", "--quiet", "."],
        "mypy": [python, "-m", "mypy"],
        # The pods' files import one another from their own folder, as they do in a pod.
        "mypy, pods' files": [
            *(python, "-m", "mypy", "--config-file=", "--strict"),
            *(str(file) for file in sorted(POD_FILES.glob("*.py"))),
        ],
        "layers of imports": [str(Path(python).with_name("lint-imports"))],
        "generated from values.source.yaml": [
            python,
            "-m",
            "devtools.docs_gen.chart_docs",
            "--check",
        ],
        "generated from the spec's tables": [
            python,
            "-m",
            "devtools.docs_gen.spec_docs",
            "--check",
        ],
        "generated from versions.yaml": [python, "-m", "devtools.docs_gen.image_docs", "--check"],
        "yamllint": [python, "-m", "yamllint", "--strict", "."],
        "helm lint": [str(tool("helm3")), "lint", "--quiet", "--strict", "charts/horovod"],
    }


def main() -> int:
    """Run all; 1 when one has something to say."""
    failed = []
    for name, command in checks().items():
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode != 0:
            failed.append(name)
    if failed:
        print(f"lint: {', '.join(failed)} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
