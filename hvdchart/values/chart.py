"""Where the chart is."""

from __future__ import annotations

from pathlib import Path

from hvdchart.errors import FileError


def chart_dir() -> Path:
    """The chart's directory: inside an installed wheel, or beside this package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "chart", package.parent / "charts" / "horovod"):
        if (candidate / "Chart.yaml").is_file():
            return candidate
    problem = "the chart is neither in the package nor in charts/horovod beside it"
    raise FileError(f"{package}: {problem}; install the package again")
