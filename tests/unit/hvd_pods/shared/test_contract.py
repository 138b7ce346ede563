"""Each variable, annotation and label that the chart and its pods share is named in one module."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

from devtools.common.repository import CHART, ROOT
from hvd_pods.shared import contract

# A variable, or the beginning of names that users must not set.
NAME = re.compile(r"HVD_[A-Z_]+(?![A-Z_.])")
# A label or an annotation of the chart's own.
OWN = r"hvdchart/[a-z-]+"
# Labels that only templates set and read.
TEMPLATE_KEYS = {"hvdchart/run", "hvdchart/settings-hash", "hvdchart/group"}


def names_in(folder: Path, pattern: str) -> set[str]:
    return {name for file in folder.rglob(pattern) for name in NAME.findall(file.read_text())}


def sections() -> dict[str, str]:
    """The parts of the contract by their titles."""
    parts = inspect.getsource(contract).split("# == ")[1:]
    return {part.splitlines()[0]: part for part in parts}


def names_by_way() -> dict[str, set[str]]:
    return {way: set(re.findall(r'= "(HVD_[A-Z_]+)"', part)) for way, part in sections().items()}


def names_of(kind: str) -> set[str]:
    """The annotations or labels of the contract, by the titles of its sections."""
    parts = [f"{way}\n{part}" for way, part in sections().items() if way.startswith(kind)]
    return set(re.findall(r'= "([a-z.]+/[a-z-]+)"', "".join(parts)))


def templates() -> str:
    files = [path for path in (CHART / "templates").rglob("*") if path.suffix in (".yaml", ".tpl")]
    return "\n".join(file.read_text() for file in files)


def test_templates_set_what_the_contract_says_that_the_chart_sets() -> None:
    templates = names_in(CHART / "templates", "*.yaml") | names_in(CHART / "templates", "*.tpl")
    said = [names for way, names in names_by_way().items() if way.startswith("From the chart")]
    assert templates - names_by_way()["From users"] == set().union(*said)


def test_values_may_set_the_variables_from_users() -> None:
    reserved = json.loads((CHART / "files/hvd_pods/shared/resources.json").read_text())["reserved"]
    assert {*reserved["userVariables"]} == names_by_way()["From users"]


# The processes of scripts import these alone.
ALONE = {"library", "rank/child_site.py", "rank/step_count.py"}


def test_programs_name_variables_as_the_contract_does() -> None:
    programs = CHART / "files" / "hvd_pods"
    every = set().union(*names_by_way().values())
    assert names_in(programs, "*.py") <= every
    spelling = {
        file.relative_to(programs)
        for file in programs.rglob("*.py")
        if re.search(r'["\']HVD_[A-Z_]+["\']', file.read_text()) and file.name != "contract.py"
    }
    alone = {file for file in spelling if ALONE & {str(file), *map(str, file.parents)}}
    assert spelling == alone


def test_templates_set_the_annotations_and_labels_but_three() -> None:
    """The master labels the node lists, and hvdchart writes the renewals and its command."""
    keys = set(re.findall(rf"^ *({OWN}): ", templates(), re.MULTILINE))
    names = names_of("Annotations") | names_of("Labels")
    own = {name for name in names if re.fullmatch(OWN, name)}
    assert own - keys == {contract.RENEWED, contract.NODE_LIST_LABEL, contract.COMMAND}
    assert keys - own == TEMPLATE_KEYS


def test_contract_has_each_annotation_and_label_of_the_templates() -> None:
    read = set(re.findall(rf"[\"']({OWN})[\"']", templates()))
    assert {contract.REVISION_LABEL, contract.ENDED} <= read
    assert read <= names_of("Annotations") | names_of("Labels") | TEMPLATE_KEYS


def test_labels_of_kubernetes_in_the_contract_are_those_of_all_objects() -> None:
    keys = set(re.findall(r"^ *(app\.kubernetes\.io/[a-z-]+): ", templates(), re.MULTILINE))
    common = {name for name in names_of("Labels") if not re.fullmatch(OWN, name)}
    assert common == {contract.NAME_LABEL, contract.INSTANCE_LABEL, contract.COMPONENT_LABEL}
    assert common <= keys


def test_no_other_module_spells_an_annotation_or_a_label() -> None:
    names = "|".join(map(re.escape, names_of("Annotations") | names_of("Labels")))
    folders = (CHART / "files" / "hvd_pods", ROOT / "hvdchart")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    found = {
        (file.name, name)
        for file in files
        for name in re.findall(rf"({names})[\"'=]", file.read_text())
        if file.name != "contract.py"
    }
    assert not found
