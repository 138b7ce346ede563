"""Texts that several packages word, or read, in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hvd_pods.common.hostile import printable

# Sequences that control a terminal: a title or a link, colours and moves, and what is left.
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")


def plain_line(line: str) -> str:
    """A line of a log as a terminal would leave it, without what controls the terminal.

    What a progress bar has written over is not in it.
    """
    shown = _ESCAPES.sub("", line).rstrip("\r\n").rpartition("\r")[2]
    return printable(shown, keeps="\t")


def join_names(names: Iterable[str], limit: int = 3) -> str:
    """The first `limit` names, and how many more there are: a, b, c and 2 more."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines whose columns are aligned; a line may be of any width.

    All rows have the same number of cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def split_image(reference: str) -> dict[str, str]:
    """The chart's keys for an image reference: those of repository, tag and digest that it has.

    registry:5000/a/b -> registry:5000/a/b and the tag latest, as for the kubelet.
    """
    name, _, digest = reference.partition("@")
    repository, colon, tag = name.rpartition(":")
    # A colon before a slash is that of a registry's port.
    if not colon or "/" in tag:
        repository = name
        tag = "" if digest else "latest"
    parts = {"repository": repository, "tag": tag, "digest": digest}
    return {key: value for key, value in parts.items() if value}


def percent_range(shares: tuple[float, float] | None) -> str:
    """A lowest and a highest share, from 0 to 1, in per cent, such as 40-97%; empty for None."""
    if shares is None:
        return ""
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in shares)
    return f"{'-'.join(ends)}%"
