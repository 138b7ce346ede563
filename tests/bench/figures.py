"""The table in which benchmarks print their figures."""

from __future__ import annotations

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
