"""Run by common/build_horovod.py before it compiles: CUDA, of the packages in this folder."""

import runpy
from pathlib import Path

HERE = Path(__file__).resolve().parent


def prepare() -> dict[str, str]:
    shared = runpy.run_path(str(HERE.parent / "nvidia" / "toolchain.py"))
    found: dict[str, str] = shared["prepare"](HERE)
    return found
