"""spec, plan, values and status reach neither Helm nor a cluster nor another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FORBIDDEN = ("pyhelm3", "kubernetes", "subprocess", "socket", "typer", "rich")
PURE = (
    "hvdchart",
    "hvdchart.spec.load",
    "hvdchart.plan.planner",
    "hvdchart.values.render",
    "hvdchart.run.status",
)


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


# What the other subcommands need, or what happens to be installed, would cost `render` more than
# all of these together: pydantic 0.11 s, jsonschema in pure Python 0.08 s.
RENDER_NEEDS = {"annotated_doc", "jsonschema_rs", "ruamel", "shellingham", "typer"}


def test_render_imports_nothing_slow() -> None:
    spec = Path(__file__).parents[3] / "values" / "xeon-4.spec.yaml"
    program = (
        "import contextlib, sys; before = set(sys.modules); from hvdchart.cli.app import main\n"
        f"sys.argv = ['hvdchart', 'render', {str(spec)!r}, '--output', '/dev/null']\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split()) - sys.stdlib_module_names - {"hvdchart"}
    assert {"jsonschema_rs", "ruamel", "typer"} <= imported
    assert imported <= RENDER_NEEDS
    assert "asyncio" not in done.stdout.split()
