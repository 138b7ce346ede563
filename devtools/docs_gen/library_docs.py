"""Writes the end of docs/library.md: what `from hvdchart import ...` gives, from the docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import hvdchart
from devtools.docs_gen.generated import replace_sections

PAGE = Path(__file__).resolve().parents[2] / "docs" / "library.md"


def section() -> str:
    """An entry for each export: functions with their arguments, classes with their fields."""
    names = [name for name in hvdchart.__all__ if not name.startswith("_")]
    exports = {name: getattr(hvdchart, name) for name in names}
    functions = [name for name in names if inspect.isfunction(exports[name])]
    errors = [
        name
        for name in names
        if isinstance(exports[name], type) and issubclass(exports[name], Exception)
    ]
    classes = [name for name in names if name not in (*functions, *errors)]
    lines: list[str] = []
    for title, members in (("Functions", functions), ("Classes", classes), ("Errors", errors)):
        lines += [f"### {title}", ""]
        for name in members:
            lines += _entry(name, exports[name])
    return "\n".join(lines).rstrip()


def _entry(name: str, thing: object) -> Iterator[str]:
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    if not text:
        sys.exit(f"library_docs: {name} has no docstring")
    if inspect.isfunction(thing):
        # Annotations are text there, and so in quotation marks.
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing)))
        yield from ("```text", f"{name}{signature}", "```", "", text, "")
    elif dataclasses.is_dataclass(thing):
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(thing) if field.repr)
        yield from (f"**`{name}`**: {text} Fields: {fields}.", "")
    else:
        yield from (f"**`{name}`**: {text}", "")


def generated_texts() -> dict[Path, str]:
    """The text that docs/library.md should have."""
    return {PAGE: replace_sections(PAGE, {"exports": section()})}
