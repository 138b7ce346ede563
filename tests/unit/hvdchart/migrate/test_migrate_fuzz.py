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

from hvdchart.errors import SpecError
from hvdchart.migrate.convert import Migration, migrate
from hvdchart.migrate.ledger import leaves
from hvdchart.migrate.report import report_text
from hvdchart.spec.paths import dotted, value_at
from hvdchart.spec.yaml_tree import Node, Place
from hvdchart.values.schema import values_schema
from tests.unit.hvdchart.migrate.old_files import (
    MARKS,
    damaged_trees,
    migrate_line,
)

pytestmark = pytest.mark.fuzz
# What a line is for, and the default of a variable that is set.
PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra", "docker", "run", "zq1")
SCHEMA = Draft7Validator(dict(values_schema()))


def node_of(value: Any) -> Node:
    """The node of a value, as the parser of YAML makes it, in a fraction of its time."""
    place = Place("<old>", 1, 1)
    if isinstance(value, dict):
        return Node(place, {key: node_of(child) for key, child in value.items()})
    if isinstance(value, list):
        return Node(place, [node_of(child) for child in value])
    return Node(place, value, value if isinstance(value, str) else json.dumps(value))


def migrated(read: Callable[[], Migration]) -> Migration | None:
    """The migration; None for a text that is refused with its place. Anything else raises."""
    try:
        migration = read()
    except SpecError as error:
        message = str(error)
        assert re.match(r"<(old|line)>(:\d+:\d+)?: ", message), message
        assert "; expected " in message
        assert message.isprintable(), message
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


@given(damaged_trees())
def test_damaged_files_lose_nothing(tree: Any) -> None:
    migration = migrated(lambda: migrate(node_of(tree), values_schema()))
    if migration is not None:
        assert_nothing_is_lost(tree, migration)


WORDS = MARKS | st.sampled_from(["a b", "c'd", "$5", "x=y", "#e", "*.py", "-q", "a;b", "{}"])
NUMBERS = st.integers(0, 40).map(str)


def option(*choices: Any) -> st.SearchStrategy[list[str]]:
    """The words of an option: each choice is a text or a strategy."""
    parts = [part if isinstance(part, st.SearchStrategy) else st.just(part) for part in choices]
    return st.tuples(*parts).map(list)


HOSTS = st.lists(
    st.sampled_from(["a", "b", "a:8", "b:8", "c:4", "d:0"]), min_size=1, max_size=4
).map(",".join)
BINDINGS = st.sampled_from(["none", "core", "socket"])
MAPPINGS = st.sampled_from(["slot", "node", "ppr:2:socket:pe=10", "ppr:4:node", "socket:PE=4"])
NAMED = st.sampled_from(["A", "B", "PATH"])
VALUES = st.tuples(NAMED, WORDS).map("=".join)
PER_HOST = st.sampled_from(["-npernode", "-ppn", "-N", "--slots-per-host", "--slots"])
# Right options of each launcher, wrong ones of all.
OPTIONS = {
    "mpirun": [
        option(st.sampled_from(["-bind-to", "--bind-to"]), BINDINGS),
        option(st.sampled_from(["-map-by", "--map-by"]), MAPPINGS),
        option("-x", VALUES),
        option("-x", NAMED),
        option(st.sampled_from(["-mca", "--mca"]), st.sampled_from(["pml", "plm_rsh_args"]), WORDS),
        option(st.sampled_from(["--tag-output", "--oversubscribe", "--allow-run-as-root"])),
        option("--output-filename", MARKS),
    ],
    "mpiexec.hydra": [
        option("-genv", NAMED, WORDS),
        option("-genvlist", NAMED),
        option("-wdir", MARKS),
    ],
    "horovodrun": [
        option(st.sampled_from(["--gloo", "--verbose", "--mpi", "--disable-cache"])),
        option(st.sampled_from(["--network-interfaces", "--output-filename", "-p"]), MARKS),
        option("--host-discovery-script", MARKS),
        option("--min-np", st.just("1")),
    ],
}
WRONG = st.one_of(
    option(st.sampled_from(["--zoom", "--hostfile"]), MARKS), option(PER_HOST, NUMBERS)
)
SIZES = st.one_of(
    st.sampled_from([
        ["-np", "16", "-H", "a:8,b:8"], ["-np", "4"], ["-H", "a:2,b:2"], ["-np", "2", "-H", "a,b"],
        ["-n", "8", "-H", "a:8,b:8"], ["--num-proc", "4", "--host", "a:2,b:2"]]),
    option(st.sampled_from(["-np", "-n", "--num-proc"]), NUMBERS, "-H", HOSTS),
)  # fmt: skip
DOCKER = st.one_of(
    option(st.sampled_from(["--rm", "-it", "--privileged", "-d"])),
    option("--gpus", st.sampled_from(["all", "2"])),
    option("-e", st.tuples(NAMED, WORDS).map("=".join)),
    option("-v", MARKS.map(lambda mark: f"/mnt/{mark}:/{mark}:ro")),
    option(st.sampled_from(["-w", "--name", "--zoom", "--entrypoint"]), MARKS),
    option("--shm-size", st.sampled_from(["16g", "1zq"])),
    option("--network", st.sampled_from(["host", "bridge"])),
)


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[str], str]:
    """The words of a line, and the script with it: variables above, comments, continued lines."""
    launcher = draw(st.sampled_from(list(OPTIONS)))
    right = draw(st.lists(st.one_of(OPTIONS[launcher]), max_size=5))
    wrong = draw(st.lists(WRONG, max_size=1)) if draw(st.integers(0, 4)) == 0 else []
    parts = [draw(SIZES), *right, *wrong]
    options = [word for part in draw(st.permutations(parts)) for word in part]
    command = ["python", *draw(st.lists(WORDS, max_size=3))]
    words = [launcher, *options, *command]
    if draw(st.integers(0, 3)) == 0:
        docker = [word for part in draw(st.lists(DOCKER, max_size=4)) for word in part]
        words = ["docker", "run", *docker, f"team/{draw(MARKS)}:1", *words]
    quoted = [shlex.quote(word) for word in words]
    above: list[str] = []
    for index in range(1, len(quoted)):
        if words[0] != "docker" and draw(st.integers(0, 9)) == 0:
            above.append(f"V{index}={quoted[index]}")
            quoted[index] = f'"$V{index}"' if draw(st.booleans()) else f'"${{V{index}:-zq1}}"'
    breaks = st.sampled_from([" ", " ", " ", "  ", " \\\n    "])
    line = "".join(word + draw(breaks) for word in quoted)
    if draw(st.integers(0, 5)) == 0 and words[0] != "docker":
        line = f"bash -c {shlex.quote(' '.join(shlex.quote(word) for word in words))}"
        above = []
    before = draw(st.sampled_from(["", "#!/bin/bash\n# a note\n", "cd /zq77\n"]))
    after = draw(st.sampled_from(["", " > zq88.log", " &", "\necho done\n", " # a note"]))
    return words, before + "".join(f"{each}\n" for each in above) + line + after


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
        pieces = [name] if f"{name}=..." in beaten else word.split("=", 1)
        for piece in pieces:
            shown = json.dumps(piece, ensure_ascii=False)[1:-1]
            assert shown in output or piece in PROGRAMS, (piece, script)
    worker = migration.values["worker"]
    ranks = [int(n) for o, n in itertools.pairwise(words) if o in ("-np", "-n")]
    if ranks and "--num-proc" not in words and "docker" not in words:
        assert worker["number"] * worker["slots"] == ranks[-1], script
