"""chart-testing (ct) accepts the chart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from devtools.toolchain.tools import tool

ROOT = Path(__file__).resolve().parents[2]


def ct(*arguments: str, **environment: str) -> str:
    """Run ct with the tools that it calls on PATH, and return its output."""
    folders = [str(Path(sys.executable).parent), str(tool("helm3").parent)]
    path = os.pathsep.join([*folders, str(tool("kubectl").parent), os.environ["PATH"]])
    done = subprocess.run(
        [str(tool("ct")), *arguments, "--config", "charts/ct/ct.yaml"],
        cwd=ROOT,
        env={**os.environ, **environment, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_ct_lint() -> None:
    assert "All charts linted successfully" in ct("lint")


def test_ct_install(kubeconfig: Path, examples_image: str) -> None:
    printed = ct("install", KUBECONFIG=str(kubeconfig))
    cases = list((ROOT / "charts" / "horovod" / "ci").glob("*-values.yaml"))
    assert len(cases) >= 2
    for case in cases:
        assert (
            f"with values file {str(case.relative_to(ROOT))!r}" in printed or case.name in printed
        )
    assert "All charts installed successfully" in printed
