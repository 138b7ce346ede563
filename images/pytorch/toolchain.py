"""Run by common/build_horovod.py before it compiles: Debian has PyTorch's headers apart."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def prepare(_folder: Path) -> dict[str, str]:
    install = HERE.parent / "common" / "apt-install.sh"
    # pybind11: PyTorch's headers include it, and Debian's package only recommends it.
    subprocess.run(["sh", install, "libtorch-dev", "pybind11-dev"], check=True)
    return {}
