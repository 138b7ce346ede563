"""spec, plan, values and status reach neither Helm nor a cluster nor another process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FORBIDDEN = ("pyhelm3", "kubernetes", "subprocess", "socket", "typer", "rich")
PURE = [
    name
    for name in ("hvdchart", "hvdchart.spec", "hvdchart.plan", "hvdchart.values", "hvdchart.status")
    if importlib.util.find_spec(name)
]


@pytest.mark.parametrize("module", PURE)
def test_imports(module: str) -> None:
    # A fresh interpreter, without site's own imports in the way.
    program = (
        f"import sys; before = set(sys.modules); import {module}; "
        f"print(*sorted({set(FORBIDDEN)!r} & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_the_pure_modules_exist() -> None:
    assert {"hvdchart", "hvdchart.spec", "hvdchart.plan", "hvdchart.values"} <= set(PURE)


def test_render_imports_nothing_slow() -> None:
    """What the other subcommands need would cost `render` more than all else together."""
    spec = Path(__file__).parents[3] / "values" / "xeon-4.spec.yaml"
    program = (
        "import sys, contextlib; from hvdchart.cli import main\n"
        f"sys.argv = ['hvdchart', 'render', {str(spec)!r}]\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "print({'pyhelm3', 'kubernetes', 'rich', 'asyncio', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"
