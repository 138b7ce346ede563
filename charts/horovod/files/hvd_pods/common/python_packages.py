"""Packages that have another name than the module that they bring (python_packages.json)."""

from __future__ import annotations

import json
from pathlib import Path

# Module -> package.
PACKAGES: dict[str, str] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
