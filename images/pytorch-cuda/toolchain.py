"""Run by common/build_horovod.py before it compiles Horovod for NVIDIA's GPUs."""

from __future__ import annotations

import runpy
from pathlib import Path

HERE = Path(__file__).resolve().parent


def prepare() -> dict[str, str]:
    toolkit = runpy.run_path(str(HERE.parent / "nvidia" / "toolkit.py"))
    found: dict[str, str] = toolkit["prepare"](HERE)
    return found
