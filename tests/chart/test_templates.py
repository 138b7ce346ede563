"""The templates prepare their facts in one folder, which declares all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from devtools.docs_gen.chart_docs import load_source
from tests.chart.render import CHART

TEMPLATES = CHART / "templates"
FACTS = TEMPLATES / "facts"
CHECKS = TEMPLATES / "checks"
# The first comment describes the file, and the others what the definition below them does.
COMMENT = re.compile(r"\{\{-? ?/\*(.*?)\*/ ?-?\}\}", re.DOTALL)
DECLARATION = re.compile(r"^  ([a-z]\S*(?:, [a-z]\S*)*)  +\S", re.MULTILINE)
SET = re.compile(r'\bset \$?\.?(facts|group|[a-z]+) "([A-Za-z0-9]+)"')
# The calls of `set` that are no statement of their own.
NESTED_SET = re.compile(r"(?<!\$_ := )(?<![$.\w])set\b")
ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
STRING = re.compile(r'"(?:\\.|[^"\\])*"|`[^`]*`')
READ = re.compile(r"\bfacts\.(\w+)(?:\.(\w+))?")
DEFINED = re.compile(r'\bdefine "([^"]+)"')
INCLUDED = re.compile(r'\binclude "([^"]+)"')
# A definition that a comment names.
MENTIONED = re.compile(r"\bhorovod\.[a-z]\w*")


def read_templates(pattern: str = "*.*") -> dict[Path, str]:
    """The text of each template."""
    return {file: file.read_text() for file in sorted(TEMPLATES.rglob(pattern))}


def declared_facts() -> list[str]:
    """The names that the comments of the steps list."""
    texts = [file.read_text() for file in sorted(FACTS.iterdir())]
    comments = [comment for text in texts for comment in COMMENT.findall(text)[1:]]
    lists = (names for text in comments for names in DECLARATION.findall(text))
    return [name for names in lists for name in names.split(", ")]


def set_facts() -> set[str]:
    """The names that the steps set: of facts, and of keys of facts and of groups."""
    text = "\n".join(COMMENT.sub("", file.read_text()) for file in sorted(FACTS.iterdir()))
    calls = set(SET.findall(text))
    facts = {name for owner, name in calls if owner == "facts"}
    keys = {f"{owner}.{name}" for owner, name in calls if owner in facts}
    of_groups = {f"groups[].{name}" for owner, name in calls if owner == "group"}
    return facts | keys | of_groups


def read_facts() -> Iterator[tuple[str, str]]:
    """Each fact and the key of it that a template reads; the key is empty for the whole fact."""
    for text in read_templates().values():
        yield from READ.findall(COMMENT.sub("", text))


def test_any_file_may_be_rendered_first() -> None:
    """Helm decides the order of the files, so that each of them prepares the values."""
    prepare = '{{- include "horovod.prepare" . -}}'
    files = read_templates()
    unprepared = [
        file for file, text in files.items() if file.suffix != ".tpl" and prepare not in text
    ]
    assert unprepared == []


def test_files_of_definitions_have_names_of_their_own() -> None:
    """Editors show the name of a file without its folder."""
    names = [file.name for file in read_templates("_*.tpl")]
    assert len(set(names)) == len(names)


def test_one_step_alone_reads_the_values_of_the_user() -> None:
    """It copies them: `.facts.values` has the defaults, too, and nothing changes `.Values`."""
    texts = (COMMENT.sub("", text) for text in read_templates().values())
    reads = [line.strip() for text in texts for line in text.splitlines() if ".Values" in line]
    assert reads == ["{{- $values := deepCopy .Values -}}"]


def test_each_fact_that_is_set_is_declared_once() -> None:
    declared = declared_facts()
    assert len(set(declared)) == len(declared)
    parents = {name.partition(".")[0] for name in declared if "." in name and "[]" not in name}
    assert set(declared) | parents == set_facts()


def test_templates_read_each_declared_fact_and_no_other() -> None:
    declared = declared_facts()
    plain = {name for name in declared if "." not in name}
    keys = {name for name in declared if "." in name and "[]" not in name}
    parents = {name.partition(".")[0] for name in keys}
    read = set(read_facts())
    assert {fact for fact, _ in read} == plain | parents
    assert {f"{fact}.{key}" for fact, key in read if fact in parents and key} == keys
    text = "\n".join(COMMENT.sub("", text) for text in read_templates().values())
    of_groups = {name.partition(".")[2] for name in declared if "[]" in name}
    assert {key for key in of_groups if not re.search(rf"\.{key}\b", text)} == set()


def test_each_definition_is_included() -> None:
    """Those of schedulers are included by the name that `gang` has."""
    text = "\n".join(read_templates().values())
    defined = DEFINED.findall(text)
    assert len(set(defined)) == len(defined)
    names: list[str] = load_source()["properties"]["gang"]["enum"]
    schedulers = {f"horovod.gangOf{name}" for name in names if name}
    assert set(defined) == {*INCLUDED.findall(text), *schedulers}


def test_comments_name_definitions_that_there_are() -> None:
    defined = set(DEFINED.findall("\n".join(read_templates().values())))
    unknown = {
        file.name: {
            name for comment in COMMENT.findall(text) for name in MENTIONED.findall(comment)
        }
        - defined
        for file, text in read_templates().items()
    }
    assert {name: names for name, names in unknown.items() if names} == {}


def test_one_list_has_all_checks_file_by_file() -> None:
    """First those of values, then those of the cluster. One runs later: it needs the kept run."""
    checks = {
        name: file.name
        for file in CHECKS.glob("*.tpl")
        for name in DEFINED.findall(file.read_text())
        if name.startswith("horovod.check") and name != "horovod.checks"
    }
    del checks["horovod.checkKeptPrograms"]
    text = (CHECKS / "_checks.tpl").read_text()
    assert sorted(INCLUDED.findall(text)) == sorted(checks)
    for part in text.split("{{- if .facts.hasAccess"):
        files = [file for file, _ in groupby(checks[name] for name in INCLUDED.findall(part))]
        assert len(files) == len(set(files))


def test_refusals_have_one_form() -> None:
    """The definition horovod.refuse alone calls `fail`."""
    texts = (COMMENT.sub("", text) for text in read_templates().values())
    assert sum(len(re.findall(r"\bfail\b", text)) for text in texts) == 1


def test_set_has_one_form() -> None:
    """`set` is a statement: {{- $_ := set $map "key" value -}}."""
    texts = {file: COMMENT.sub("", text) for file, text in read_templates().items()}
    actions = {
        file.name: [STRING.sub("", action) for action in ACTION.findall(text)]
        for file, text in texts.items()
    }
    nested = {
        name: [action for action in file_actions if NESTED_SET.search(action)]
        for name, file_actions in actions.items()
    }
    assert {name: calls for name, calls in nested.items() if calls} == {}
