"""The table in which benchmarks print their figures, and their confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def print_figures(
    title: str, rows: Mapping[str, Sequence[float]], **columns: Mapping[str, str]
) -> None:
    """Print the lowest, median and highest figure of each row, then further columns by row."""
    table = Table("", "min", "median", "max", *columns, title=title)
    for name, row in rows.items():
        figures = (min(row), statistics.median(row), max(row))
        more = (column[name] for column in columns.values())
        table.add_row(name, *(f"{figure:.2f}" for figure in figures), *more)
    Console(width=120).print(table)


def interval(figures: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of the mean; NaN for a single figure.

    Student's t quantile by its expansion (Abramowitz and Stegun, 26.7.5).
    """
    if len(figures) < 2:
        return math.nan
    z, free = statistics.NormalDist().inv_cdf(0.975), len(figures) - 1
    quantile = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return quantile * statistics.stdev(figures) / math.sqrt(len(figures))
