"""The rules of the master's Role, as the chart's template has them."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML

from hvdchart.chart_files import chart_dir


def role_rules() -> list[dict[str, Any]]:
    """Return the rules, without the names that the template fills in."""
    text = (chart_dir() / "templates" / "master" / "role.yaml").read_text()
    rules = re.sub(r"\{\{- /\*.*?\*/}}", "", text.split("\nrules:\n")[1], flags=re.DOTALL)
    lines = [line for line in rules.splitlines() if "{{" not in line]
    loaded: list[dict[str, Any]] = YAML(typ="safe").load("\n".join(lines))
    return loaded
