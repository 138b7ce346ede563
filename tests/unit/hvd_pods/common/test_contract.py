"""Each variable between the chart and its pods is named in one module."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from hvd_pods.common import contract

CHART = Path(inspect.getfile(contract)).resolve().parents[3]
# A variable, or the beginning of names that users must not set.
NAME = re.compile(r"HVD_[A-Z_]+(?![A-Z_.])")


def names_in(folder: Path, pattern: str) -> set[str]:
    return {name for file in folder.rglob(pattern) for name in NAME.findall(file.read_text())}


def names_by_way() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for part in inspect.getsource(contract).split("# == ")[1:]:
        found[part.splitlines()[0]] = set(re.findall(r'= "(HVD_[A-Z_]+)"', part))
    return found


def test_templates_set_what_the_contract_says_that_the_chart_sets() -> None:
    templates = names_in(CHART / "templates", "*.yaml") | names_in(CHART / "templates", "*.tpl")
    said = [names for way, names in names_by_way().items() if way.startswith("From the chart")]
    assert templates == set().union(*said)


def test_programs_name_no_variable_that_the_contract_does_not_have() -> None:
    every = set().union(*names_by_way().values())
    assert names_in(CHART / "files" / "hvd_pods", "*.py") <= every
