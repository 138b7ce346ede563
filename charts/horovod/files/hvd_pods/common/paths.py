"""The paths that the pods' programs share, for programs that use pathlib."""

from __future__ import annotations

from pathlib import Path

from hvd_pods.common import fast_start

PROGRAMS = Path(fast_start.PROGRAMS)
KEYS = Path(fast_start.KEYS)
GENERATED = Path(fast_start.GENERATED)
CODE_SOURCE = Path(fast_start.CODE_SOURCE)
CODE = Path(fast_start.CODE)
