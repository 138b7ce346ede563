"""Write the values that an upgrade affects: the retired keys, and the defaults that changed since
each earlier version. Both are read from their sources, so that the page is complete.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from devtools.common.errors import DevtoolsError
from devtools.docs_gen.chart_docs import CHART, inline, load_source
from devtools.docs_gen.generated import replace_sections, table

ROOT = CHART.parents[1]
RELEASED = ROOT / "tests" / "released"
PAGE = ROOT / "docs" / "compatibility.md"


def changed_defaults(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted keys that both versions have with different defaults, with both defaults."""
    for name, old in before.items():
        if name not in now:
            continue
        new = now[name]
        if old and new and isinstance(old, dict) and isinstance(new, dict):
            yield from changed_defaults(old, new, f"{prefix}{name}.")
        elif old != new:
            yield f"{prefix}{name}", old, new


def _values(package: Path) -> dict[str, Any]:
    """Return the values.yaml of a packaged chart. Raises DevtoolsError where it is none."""
    with tarfile.open(package) as archive:
        file = archive.extractfile("horovod/values.yaml")
        if file is None:
            raise DevtoolsError(
                f"{package}: horovod/values.yaml is no file", "python -m devtools.release keep"
            )
        values: dict[str, Any] = YAML(typ="safe").load(file)
    return values


def generated_texts() -> dict[Path, str]:
    """Return the page with both tables."""
    retired = ((f"`{key}`", instead) for key, instead in load_source()["retired"].items())
    now = YAML(typ="safe").load(CHART / "values.yaml")
    changed = [
        (f"`{key}`", package.stem.removeprefix("horovod-"), f"`{inline(old)}`", f"`{inline(new)}`")
        for package in sorted(RELEASED.glob("horovod-*.tgz"))
        for key, old, new in changed_defaults(_values(package), now)
    ]
    sections = {
        "retired values": table(("Refused", "Use instead"), retired),
        "changed defaults": table(("Value", "Version", "Its default then", "Now"), changed),
    }
    return {PAGE: replace_sections(PAGE, sections)}
