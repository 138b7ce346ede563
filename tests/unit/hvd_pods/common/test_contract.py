"""Each variable and annotation that the chart and its pods share is named in one module."""

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


def annotation_names() -> set[str]:
    return set(re.findall(r'= "(horovod/[a-z-]+)"', inspect.getsource(contract)))


def test_templates_set_the_annotations_but_that_of_a_renewal() -> None:
    """The command of a session writes that one."""
    lines = "".join(file.read_text() for file in (CHART / "templates").rglob("*.yaml"))
    keys = set(re.findall(r"^ +(horovod/[a-z-]+): ", lines, re.MULTILINE))
    assert annotation_names() - keys == {contract.RENEWED}


def test_no_other_module_spells_an_annotation() -> None:
    folders = (CHART / "files" / "hvd_pods", CHART.parents[1] / "hvdchart")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    found = {
        (file.name, name)
        for file in files
        for name in re.findall(r"[\"'](horovod/[a-z-]+)[\"']", file.read_text())
        if name in annotation_names() and file.name != "contract.py"
    }
    assert not found
