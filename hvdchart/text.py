"""Format and parse texts that several packages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hvd_pods.shared.untrusted import printable

# What a command that watches code says after an error, which the next save may fix.
NEXT_CHANGE = "waiting for the next change"
# Sequences that control a terminal: a title or a link, colours and cursor moves, and other control
# characters.
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")
# The width of a line of YAML: no line is wrapped.
_YAML_CHARACTERS = 10_000


def plain_line(line: str) -> str:
    """Return a log line as a terminal would show it, without control sequences.

    Text that a progress bar has overwritten is left out.
    """
    shown = _ESCAPES.sub("", line).rstrip("\r\n").rpartition("\r")[2]
    return printable(shown, keeps="\t")


def join_names(names: Iterable[str], limit: int = 3) -> str:
    """Join the first `limit` names, and add the number of further ones: a, b, c and 2 more."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of cells as lines with aligned columns; a line may have any width.

    All rows have the same number of cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def split_image(reference: str) -> dict[str, str]:
    """Split an image reference into the chart's keys: the repository, tag and digest that it has.

    registry:5000/a/b -> registry:5000/a/b and the tag latest, as for the kubelet.
    """
    name, _, digest = reference.partition("@")
    repository, colon, tag = name.rpartition(":")
    # A colon before a slash belongs to a registry's port.
    if not colon or "/" in tag:
        repository = name
        tag = "" if digest else "latest"
    parts = {"repository": repository, "tag": tag, "digest": digest}
    return {key: value for key, value in parts.items() if value}


def percent_range(shares: tuple[float, float] | None) -> str:
    """Format a lowest and a highest share, from 0 to 1, in per cent: 40-97%; empty for None."""
    if shares is None:
        return ""
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in shares)
    return f"{'-'.join(ends)}%"


def yaml_text(document: object) -> str:
    """Return a document as YAML, with the order of its keys, and each text on one line."""
    import yaml

    text: str = yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, width=_YAML_CHARACTERS
    )
    return text.rstrip("\n")
