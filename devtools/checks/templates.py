"""Check the chart's templates: one folder prepares the facts and declares all of them, each
definition is used, one list has all checks, and refusals and calls of `set` have one form.

`python -m devtools.checks.templates` prints each problem and exits with 1 when there is one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from devtools.checks.problems import find_files, print_problems
from devtools.common.repository import CHART, ROOT
from hvdchart.spec.values_schema import schema_at, values_schema

FACTS_FOLDER = "facts/"
CHECKS_FOLDER = "checks/"
LIST_OF_CHECKS = "checks/_checks.tpl"
# The part of the list with checks of objects in the cluster.
CLUSTER_PART = "{{- if .facts.hasAccess"
# It runs when the run that the upgrade keeps has been found.
LATER_CHECK = "horovod.checkKeptPrograms"
PREPARATION = '{{- include "horovod.prepare" . -}}'
COPY_OF_VALUES = "{{- $values := deepCopy .Values -}}"
# The first comment describes the file, and the others what the definition below them does.
COMMENT = re.compile(r"\{\{-? ?/\*(.*?)\*/ ?-?\}\}", re.DOTALL)
DECLARATION = re.compile(r"^  ([a-z]\S*(?:, [a-z]\S*)*)  +\S", re.MULTILINE)
SET = re.compile(r'\bset \$?\.?(facts|group|[a-z]+) "([A-Za-z0-9]+)"')
# The calls of `set` that are no statement of their own.
NESTED_SET = re.compile(r"(?<!\$_ := )(?<![$.\w])set\b")
ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
STRING = re.compile(r'"(?:\\.|[^"\\])*"|`[^`]*`')
READ = re.compile(r"\bfacts\.(\w+)(?:\.(\w+))?")
FAIL = re.compile(r"\bfail\b")
DEFINED = re.compile(r'\bdefine "([^"]+)"')
INCLUDED = re.compile(r'\binclude "([^"]+)"')
# A definition that a comment names.
MENTIONED = re.compile(r"\bhorovod\.[a-z]\w*")


class Template(NamedTuple):
    """A file of the chart's templates: its path below their folder, and its text."""

    name: str
    text: str

    @property
    def code(self) -> str:
        """The text without comments."""
        return COMMENT.sub("", self.text)

    @property
    def comments(self) -> list[str]:
        return COMMENT.findall(self.text)

    @property
    def definitions(self) -> list[str]:
        return DEFINED.findall(self.text)


Templates: TypeAlias = Sequence[Template]


def check_preparation(templates: Templates) -> Iterator[str]:
    """Yield each file that does not prepare the facts: Helm decides which one it renders first."""
    for template in templates:
        if not template.name.endswith(".tpl") and PREPARATION not in template.text:
            yield f"{template.name}: begin with {PREPARATION}"


def check_file_names(templates: Templates) -> Iterator[str]:
    """Yield files of one name, which editors show without its folder."""
    paths = [Path(template.name) for template in templates if template.name.endswith(".tpl")]
    counts = Counter(path.name for path in paths)
    for path in paths:
        if counts[path.name] > 1:
            yield f"{path}: another file of definitions has the name {path.name}, too"


def check_reads_of_values(templates: Templates) -> Iterator[str]:
    """Yield reads of the user's values, which one step copies and completes."""
    copies = 0
    for template in templates:
        for line in template.code.splitlines():
            if line.strip() == COPY_OF_VALUES:
                copies += 1
            elif ".Values" in line:
                yield f"{template.name}: read .facts.values, not .Values: {line.strip()}"
    if copies != 1:
        yield f"{FACTS_FOLDER}: {copies} steps have {COPY_OF_VALUES}, and one should"


def list_declared_facts(templates: Templates) -> list[str]:
    """Return the names that the comments of the steps list."""
    return [
        name
        for template in templates
        if template.name.startswith(FACTS_FOLDER)
        for comment in template.comments[1:]
        for names in DECLARATION.findall(comment)
        for name in names.split(", ")
    ]


def parents_of(facts: Sequence[str]) -> set[str]:
    """Return the facts whose keys are declared, such as code of code.size."""
    return {name.partition(".")[0] for name in facts if "." in name and "[]" not in name}


def find_set_facts(templates: Templates) -> set[str]:
    """Return the names that the steps set: of facts, and of keys of facts and of groups."""
    calls = {
        call
        for template in templates
        if template.name.startswith(FACTS_FOLDER)
        for call in SET.findall(template.code)
    }
    facts = {name for owner, name in calls if owner == "facts"}
    keys = {f"{owner}.{name}" for owner, name in calls if owner in facts}
    of_groups = {f"groups[].{name}" for owner, name in calls if owner == "group"}
    return facts | keys | of_groups


def check_declarations(templates: Templates) -> Iterator[str]:
    """Yield facts that are not declared once, or that no step sets."""
    declared = list_declared_facts(templates)
    known = {*declared, *parents_of(declared)}
    set_facts = find_set_facts(templates)
    for name, count in Counter(declared).items():
        if count > 1:
            yield f"{FACTS_FOLDER}: {name} is declared {count} times"
    for name in sorted(known - set_facts):
        yield f"{FACTS_FOLDER}: {name} is declared, and no step sets it"
    for name in sorted(set_facts - known):
        yield f"{FACTS_FOLDER}: {name} is set, and no comment of a step declares it"


def check_reads_of_facts(templates: Templates) -> Iterator[str]:
    """Yield facts that a template reads and no step declares, and those that none reads."""
    declared = list_declared_facts(templates)
    parents = parents_of(declared)
    known = {name for name in declared if "[]" not in name} | parents
    read: set[str] = set()
    for template in templates:
        for fact, key in READ.findall(template.code):
            names = {fact, f"{fact}.{key}"} if key and fact in parents else {fact}
            for name in sorted(names - known):
                yield f"{template.name}: reads {name}, which no step declares"
            read |= names
    code = "\n".join(template.code for template in templates)
    of_groups = [name for name in declared if "[]" in name]
    keys = {name: name.partition(".")[2] for name in of_groups}
    read |= {name for name, key in keys.items() if re.search(rf"\.{re.escape(key)}\b", code)}
    for name in sorted({*known, *of_groups} - read):
        yield f"{FACTS_FOLDER}: {name} is declared, and no template reads it"


def gang_definitions() -> set[str]:
    """Return the definitions that are included by the name of a scheduler: a value of `gang`."""
    schema = schema_at(values_schema(), ["gang"]) or {}
    return {f"horovod.gangOf{name}" for name in schema["enum"] if name}


def check_definitions(templates: Templates) -> Iterator[str]:
    """Yield definitions that share a name, or that are never included."""
    counts = Counter(name for template in templates for name in template.definitions)
    included = {name for template in templates for name in INCLUDED.findall(template.text)}
    included |= gang_definitions()
    for template in templates:
        for name in template.definitions:
            if counts[name] > 1:
                yield f"{template.name}: {name} is defined {counts[name]} times"
            if name not in included:
                yield f"{template.name}: {name} is never included"
    for name in sorted(included - counts.keys()):
        yield f"{name} is included, and defined nowhere"


def check_comments(templates: Templates) -> Iterator[str]:
    """Yield the names of definitions in comments that there are not."""
    defined = {name for template in templates for name in template.definitions}
    for template in templates:
        mentioned = {name for text in template.comments for name in MENTIONED.findall(text)}
        for name in sorted(mentioned - defined):
            yield f"{template.name}: a comment names {name}, which is defined nowhere"


def check_list_of_checks(templates: Templates) -> Iterator[str]:
    """Yield checks that the list has not once, or not beside the others of their file.

    The list has the checks of values, and then those of the cluster.
    """
    files = {
        name: template.name
        for template in templates
        if template.name.startswith(CHECKS_FOLDER) and template.name.endswith(".tpl")
        for name in template.definitions
        if name.startswith("horovod.check") and name not in ("horovod.checks", LATER_CHECK)
    }
    text = "".join(template.text for template in templates if template.name == LIST_OF_CHECKS)
    listed = Counter(INCLUDED.findall(text))
    for name in sorted({*files, *listed}):
        if listed[name] != 1 or name not in files:
            yield f"{LIST_OF_CHECKS}: {name} is listed {listed[name]} times; list each check once"
    for part in text.split(CLUSTER_PART):
        order = [files[name] for name in INCLUDED.findall(part) if name in files]
        for file, count in Counter(file for file, _ in groupby(order)).items():
            if count > 1:
                yield f"{LIST_OF_CHECKS}: list the checks of {file} together"


def check_refusals(templates: Templates) -> Iterator[str]:
    """Yield the files that call `fail`, unless it is horovod.refuse alone."""
    calls = [template.name for template in templates for _ in FAIL.findall(template.code)]
    if calls != [LIST_OF_CHECKS]:
        yield f"{', '.join(calls) or 'no file'}: only horovod.refuse calls `fail`, and once"


def check_set_statements(templates: Templates) -> Iterator[str]:
    """Yield calls of `set` that are no statement."""
    for template in templates:
        for action in ACTION.findall(template.code):
            if NESTED_SET.search(STRING.sub("", action)):
                statement = '{{- $_ := set $map "key" value -}}'
                yield f"{template.name}: write {statement}, and not {action}"


RULES: tuple[Callable[[Templates], Iterator[str]], ...] = (
    check_preparation,
    check_file_names,
    check_reads_of_values,
    check_declarations,
    check_reads_of_facts,
    check_definitions,
    check_comments,
    check_list_of_checks,
    check_refusals,
    check_set_statements,
)


def find_problems(templates: Templates) -> Iterator[str]:
    """Yield each problem of the templates."""
    for rule in RULES:
        yield from rule(templates)


def read_templates() -> list[Template]:
    """Read the templates of the chart. Exits with a message when there are none."""
    folder = (CHART / "templates").relative_to(ROOT)
    files = find_files(f"{folder}/*")
    if not files:
        sys.exit(f"no file is in {folder}: nothing is checked")
    return [
        Template(file.relative_to(folder).as_posix(), (ROOT / file).read_text("utf-8"))
        for file in files
    ]


def main() -> int:
    """Print all problems. Return 1 when there is one."""
    return print_problems(find_problems(read_templates()))


if __name__ == "__main__":
    sys.exit(main())
