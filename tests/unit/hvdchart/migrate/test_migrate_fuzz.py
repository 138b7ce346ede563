"""Generated files and command lines: an error names the place, or each value is in the result.

What is checked does not come from the ledger: every word that is put in must be in the values
or in the report. `make fuzz` tries many inputs, any other run few.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from jsonschema_rs import Draft7Validator

from hvd_pods.shared.untrusted import printable
from hvdchart.errors import SpecError
from hvdchart.migrate.ledger import Ledger, leaves
from hvdchart.migrate.migration_text import report_text
from hvdchart.spec.paths import format_path, value_at
from hvdchart.spec.values_schema import values_schema
from tests.support.migrations import FILES, damaged_trees, migrate_line, migrate_tree
from tests.support.strategies import MARKS

pytestmark = pytest.mark.fuzz
SCHEMA = Draft7Validator(dict(values_schema()))


def migrated(read: Callable[[], Ledger]) -> Ledger | None:
    """The migration; None for a text that is refused with its place. Anything else raises."""
    try:
        migration = read()
    except SpecError as error:
        message = str(error)
        assert re.match(r"<(old|line)>(:\d+:\d+)?: ", message), message
        assert "; expected " in message
        assert printable(message, keeps="") == message
        assert len(message) < 1500, message
        event("refused")
        return None
    assert list(SCHEMA.iter_errors(dict(migration.values))) == []
    event(f"read as {migration.source}")
    return migration


def words_in(value: Any) -> str:
    """All texts in a tree, one after the other."""
    return json.dumps(value, ensure_ascii=False)


def assert_nothing_is_lost(tree: Any, migration: Ledger) -> None:
    """Each value has an entry; a marked one is in the values, or in the report with a reason."""
    values = words_in(dict(migration.values))
    report = report_text(migration)
    entries = {entry.old: entry for entry in migration.entries}
    parts = [entry.old.partition(": ")[2] for entry in migration.entries]
    for path in leaves(tree, ()):
        # The entry of the value itself, or of the nearest map or list around it.
        names = [format_path(path[: length + 1]) for length in range(len(path))]
        *_, name = [name for name in names if name in entries]
        value = value_at(tree, path)
        if not (isinstance(value, str) and value.startswith("zq")):
            continue
        if entries[name].outcome == "dropped":
            assert entries[name].reason
            assert name in report
        else:
            # A word of a command line may be an option that the report names as dropped.
            places = [values, migration.release, migration.namespace, *parts]
            assert any(value in place for place in places), format_path(path)


@given(damaged_trees)
def test_damaged_files_lose_nothing(tree: Any) -> None:
    migration = migrated(lambda: migrate_tree(tree))
    if migration is not None:
        assert_nothing_is_lost(tree, migration)


# The words of old scripts, but for comments and the lines of a batch system.
SCRIPTS = [
    (path.name, text, match.span())
    for path in FILES
    if path.suffix == ".sh"
    for text in [path.read_text()]
    for match in re.finditer(r"^#.*|[A-Za-z0-9./:,=-]+", text, re.MULTILINE)
    if not match[0].startswith("#")
]


@given(st.sampled_from(SCRIPTS), MARKS, st.sampled_from(["{}", "--{}", "-x {}=1", "V={}", "{}=b"]))
def test_scripts_lose_no_word(
    place: tuple[str, str, tuple[int, int]], mark: str, form: str
) -> None:
    """A mark in place of a word is in the values or in the report, or its line has an entry."""
    _, text, (start, end) = place
    script = f"{text[:start]}{form.format(mark)}{text[end:]}"
    migration = migrated(lambda: migrate_line(script))
    if migration is None:
        return
    output = words_in(dict(migration.values)) + report_text(migration) + migration.release
    line = f"line {text.count(chr(10), 0, start) + 1}"
    dropped = [
        entry.old.partition(", part")[0]
        for entry in migration.entries
        if entry.outcome == "dropped"
    ]
    assert mark in output + migration.namespace or line in dropped, script
