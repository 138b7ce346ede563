"""Objects of docs/gitops.md."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML

from devtools.common.markdown import code_blocks
from devtools.common.repository import DOCS

PAGE = DOCS / "gitops.md"


def documented_object(kind: str, number: int = 0) -> dict[str, Any]:
    """Return the page's first object of a kind, or the one of this number. It may be a part of an
    object.
    """
    yaml = YAML(typ="safe")
    objects: list[dict[str, Any]] = []
    for block in code_blocks(PAGE, "yaml"):
        objects += [part for part in yaml.load_all(block) if part.get("kind") == kind]
    return objects[number]
