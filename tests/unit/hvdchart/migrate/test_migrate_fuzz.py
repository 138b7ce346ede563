"""Generated files and command lines: an error names the place, or each value is in the result.

What is checked does not come from the ledger: every word that is put in must be in the values
or in the report. `make fuzz` tries many inputs, any other run few.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from jsonschema_rs import Draft7Validator

from hvd_pods.common.hostile import printable
from hvdchart.errors import SpecError
from hvdchart.migrate.convert import Migration
from hvdchart.migrate.ledger import leaves
from hvdchart.migrate.report import report_text
from hvdchart.spec.paths import dotted, value_at
from hvdchart.values.schema import values_schema
from tests.unit.hvdchart.migrate.old_files import damaged_trees, migrate_line, migrate_tree
from tests.unit.hvdchart.strategies import MARKS

pytestmark = pytest.mark.fuzz
# What a line is for, and the default of a variable that is set.
PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra", "docker", "run", "zq1")
SCHEMA = Draft7Validator(dict(values_schema()))


def migrated(read: Callable[[], Migration]) -> Migration | None:
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


def assert_nothing_is_lost(tree: Any, migration: Migration) -> None:
    """Each value has an entry; a marked one is in the values, or in the report with a reason."""
    values, report = words_in(dict(migration.values)), report_text(migration)
    entries = {entry.old: entry for entry in migration.entries}
    parts = [entry.old.partition(": ")[2] for entry in migration.entries]
    for path in leaves(tree, ()):
        # The entry of the value itself, or of a map or list around it.
        names = [dotted(path[: length + 1]) for length in range(len(path))]
        (name,) = [name for name in names if name in entries]
        value = value_at(tree, path)
        if not (isinstance(value, str) and value.startswith("zq")):
            continue
        if entries[name].outcome == "dropped":
            assert entries[name].reason
            assert name in report
        else:
            # A word of a command line may be an option that the report names as dropped.
            places = [values, migration.release, migration.namespace, *parts]
            assert any(value in place for place in places), dotted(path)


@given(damaged_trees)
def test_damaged_files_lose_nothing(tree: Any) -> None:
    migration = migrated(lambda: migrate_tree(tree))
    if migration is not None:
        assert_nothing_is_lost(tree, migration)


WORDS = MARKS | st.sampled_from(["a b", "c'd", "$5", "x=y", "#e", "*.py", "-q", "a;b", "{}"])
# Options of each launcher, with what a generated word, mark or number takes the place of.
OPTIONS = {
    "mpirun": [
        *("-bind-to none", "--map-by node", "--map-by ppr:2:socket:pe=10", "-map-by ppr:4:node"),
        *("-x A=WORD", "-x B=WORD", "-x PATH", "-mca pml WORD", "--mca plm_rsh_args WORD"),
        *("--tag-output", "--allow-run-as-root", "--output-filename MARK", "-npernode NUMBER"),
    ],
    "mpiexec.hydra": ["-genv A WORD", "-genv B WORD", "-genvlist PATH", "-wdir MARK", "-ppn 2"],
    "horovodrun": [
        *("--gloo", "--mpi", "--disable-cache", "--network-interfaces MARK", "--slots NUMBER"),
        *("-p MARK", "--host-discovery-script MARK", "--min-np 1", "--zoom MARK"),
    ],
    "docker": [
        *("--rm", "-it", "--privileged", "--gpus all", "--gpus 2", "-e A=WORD", "-e B=WORD"),
        *("-v /mnt/MARK:/data:ro", "-w MARK", "--name MARK", "--zoom MARK", "--entrypoint MARK"),
        *("--shm-size 16g", "--shm-size 1zq", "--network host", "--network bridge"),
    ],
}  # fmt: skip
SIZES = [
    *("-np 16 -H a:8,b:8", "-np 4", "-H a:2,b:2", "-np 2 -H a,b", "-n 8 -H a:8,b:8"),
    *("-np NUMBER -H a:8,b:8", "-n NUMBER -H a,b:8,c:4,d:0"),
]


@st.composite
def options(draw: st.DrawFn, choices: list[str], least: int, most: int) -> list[str]:
    """The words of some of the options."""
    made = {"WORD": WORDS, "MARK": MARKS, "NUMBER": st.integers(0, 40).map(str)}
    return [
        re.sub("WORD|MARK|NUMBER", lambda match: draw(made[match[0]]), word)
        for option in draw(st.lists(st.sampled_from(choices), min_size=least, max_size=most))
        for word in option.split()
    ]


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[str], str]:
    """The words of a line, and the script with it, some of whose words are variables above it."""
    launcher = draw(st.sampled_from(["mpirun", "mpiexec.hydra", "horovodrun"]))
    words = [launcher, *draw(options(SIZES, 1, 1)), *draw(options(OPTIONS[launcher], 0, 5))]
    words += ["python", *draw(st.lists(WORDS, max_size=3))]
    if draw(st.integers(0, 3)) == 0:
        image = f"team/{draw(MARKS)}:1"
        words = ["docker", "run", *draw(options(OPTIONS["docker"], 0, 4)), image, *words]
    quoted = [shlex.quote(word) for word in words]
    above = ""
    for index in draw(st.lists(st.integers(1, len(words) - 1), max_size=2, unique=True)):
        if words[0] != "docker":
            above += f"V{index}={quoted[index]}\n"
            quoted[index] = f'"${{V{index}:-zq1}}"'
    return words, above + draw(st.sampled_from([" ", " \\\n    "])).join(quoted)


@given(command_lines())
def test_command_lines_lose_no_word(given_line: tuple[list[str], str]) -> None:
    words, script = given_line
    migration = migrated(lambda: migrate_line(script))
    if migration is None:
        return
    output = words_in(dict(migration.values)) + json.dumps(report_text(migration))
    beaten = {entry.old.partition("-e ")[2] for entry in migration.entries if not entry.new}
    for word in words:
        # A variable's value is not printed in the report: it is in the values, or its name has an
        # entry with the reason.
        name = word.partition("=")[0]
        for piece in [name] if f"{name}=..." in beaten else word.split("=", 1):
            shown = json.dumps(piece, ensure_ascii=False)[1:-1]
            assert shown in output or piece in PROGRAMS, (piece, script)
    worker = migration.values["worker"]
    ranks = [int(n) for o, n in itertools.pairwise(words) if o in ("-np", "-n")]
    if ranks and "docker" not in words:
        assert worker["number"] * worker["slots"] == ranks[-1], script
