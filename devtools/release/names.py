"""The names in a version that users refer to: values, keys of a spec, commands and options, the
library.

tests/released keeps them for each version. A test compares these lists with today's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hvdchart
from hvdchart.cli import app
from hvdchart.spec.model import json_schema

VALUES = Path(__file__).resolve().parents[2] / "charts" / "horovod" / "values.schema.json"


def names() -> dict[str, list[str]]:
    """Return the names of this tree by their kind."""
    by_kind = {
        "values": schema_keys(json.loads(VALUES.read_text("utf-8"))),
        "spec": schema_keys(json.loads(json_schema())),
        "commands": _commands(app.command(), ""),
        "library": hvdchart.__all__,
    }
    return {kind: sorted(set(words)) for kind, words in by_kind.items()}


def schema_keys(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a JSON Schema; [] stands for any item of a list, * for any key."""
    for name, child in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from schema_keys(child, f"{prefix}{name}.")
    item = f"{prefix.removesuffix('.')}[]."
    for keyword, below in (("items", item), ("additionalProperties", f"{prefix}*.")):
        if isinstance(schema.get(keyword), dict):
            yield from schema_keys(schema[keyword], below)


def _commands(group: Any, prefix: str) -> Iterator[str]:
    """Yield each command by its words, alone and with each option."""
    for word, command in group.commands.items():
        words = f"{prefix}{word}"
        if hasattr(command, "commands"):
            yield from _commands(command, f"{words} ")
        else:
            yield words
            for option in command.params:
                for name in (*option.opts, *option.secondary_opts):
                    if name.startswith("-"):
                        yield f"{words} {name}"
