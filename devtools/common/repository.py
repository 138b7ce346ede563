"""The folders of this repository that several tools and tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "horovod"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
EXAMPLE_VALUES = ROOT / "values"
