"""Where the project is, and what the proof installs."""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
# What the pods run, and what scripts import of it.
PROGRAMS = PROJECT / "charts/horovod/files"
LIBRARY = PROGRAMS / "hvd_pods/library"
# Outside of the project, which may be on a small or a read-only disk.
PREFIX = Path("/tmp/hvd-gpu/prefix")  # noqa: S108 - the machine is the proof's own
# Open MPI's wheel has programs and libraries besides, and Horovod finds them four folders up.
SITE = PREFIX / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
