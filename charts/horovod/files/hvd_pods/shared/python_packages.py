"""Packages whose name differs from that of their module (python_packages.json)."""

from __future__ import annotations

import json
from pathlib import Path

# Module -> package.
PACKAGE_OF_MODULE: dict[str, str] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
