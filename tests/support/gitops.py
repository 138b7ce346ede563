"""Objects of docs/gitops.md."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML

from devtools.common.repository import DOCS
from tests.support.pages import blocks

PAGE = DOCS / "gitops.md"


def documented(kind: str, number: int = 0) -> dict[str, Any]:
    """Return the page's first object of a kind, or the one of this number. It may be a part of an
    object.
    """
    yaml = YAML(typ="safe")
    documents = (each for block in blocks(PAGE, "yaml") for each in yaml.load_all(block))
    found: list[dict[str, Any]] = [each for each in documents if each.get("kind") == kind]
    return found[number]
