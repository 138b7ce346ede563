"""One module reaches Helm and one the cluster's API; all others can be used without either."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hvdchart

PACKAGE = Path(hvdchart.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
ONLY = {"pyhelm3": "run/helm.py", "kubernetes": "run/cluster.py"}
# Without a cluster's client these work on what others read of it.
PURE = ["discover.spec_text", "run.logs", "migrate.report", "run.report", "tune.grid"]


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, at its head or in a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize(("package", "module"), ONLY.items())
def test_the_only_importer(package: str, module: str) -> None:
    assert [str(path.relative_to(PACKAGE)) for path in SOURCES if package in imported(path)] == [
        module
    ]


@pytest.mark.parametrize("module", PURE)
def test_no_client_behind_pure_modules(module: str) -> None:
    program = f"import sys, hvdchart.{module}; print(*{set(ONLY)!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_no_shell() -> None:
    """pyhelm3 runs Helm through a shell; here nothing does."""
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert "shell=True" not in text, path.name
        assert "create_subprocess_shell" not in text, path.name
