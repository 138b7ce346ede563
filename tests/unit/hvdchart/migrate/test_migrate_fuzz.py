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
from tests.unit.hvdchart.migrate.old_files import MARKS, damaged_trees, migrate_line, migrate_tree

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


@given(damaged_trees())
def test_damaged_files_lose_nothing(tree: Any) -> None:
    migration = migrated(lambda: migrate_tree(tree))
    if migration is not None:
        assert_nothing_is_lost(tree, migration)


WORDS = MARKS | st.sampled_from(["a b", "c'd", "$5", "x=y", "#e", "*.py", "-q", "a;b", "{}"])
# Options of each launcher, with what a generated word, mark or number takes the place of.
OPTIONS = {
    "mpirun": [
        *("-bind-to none", "--bind-to core", "-bind-to socket", "-map-by slot", "--map-by node"),
        *("--map-by ppr:2:socket:pe=10", "-map-by ppr:4:node", "-map-by socket:PE=4"),
        *("-x A=WORD", "-x B=WORD", "-x PATH", "-mca pml WORD", "--mca plm_rsh_args WORD"),
        *("--tag-output", "--oversubscribe", "--allow-run-as-root", "--output-filename MARK"),
    ],
    "mpiexec.hydra": ["-genv A WORD", "-genv B WORD", "-genvlist PATH", "-wdir MARK"],
    "horovodrun": [
        *("--gloo", "--verbose", "--mpi", "--disable-cache", "--network-interfaces MARK"),
        *("--output-filename MARK", "-p MARK", "--host-discovery-script MARK", "--min-np 1"),
    ],
    "docker": [
        *("--rm", "-it", "--privileged", "-d", "--gpus all", "--gpus 2", "-e A=WORD", "-e B=WORD"),
        *("-v /mnt/MARK:/data:ro", "-w MARK", "--name MARK", "--zoom MARK", "--entrypoint MARK"),
        *("--shm-size 16g", "--shm-size 1zq", "--network host", "--network bridge"),
    ],
}
WRONG = [
    *("--zoom MARK", "--hostfile MARK", "-npernode NUMBER", "-ppn NUMBER", "-N NUMBER"),
    *("--slots-per-host NUMBER", "--slots NUMBER"),
]
SIZES = [
    *("-np 16 -H a:8,b:8", "-np 4", "-H a:2,b:2", "-np 2 -H a,b", "-n 8 -H a:8,b:8"),
    *("--num-proc 4 --host a:2,b:2", "-np NUMBER -H a:8,b:8", "-n NUMBER -H a,b:8,c:4,d:0"),
]


@st.composite
def options(draw: st.DrawFn, choices: list[str], least: int, most: int) -> list[list[str]]:
    """Some of the options, each as its words."""
    made = {"WORD": WORDS, "MARK": MARKS, "NUMBER": st.integers(0, 40).map(str)}
    return [
        [re.sub("WORD|MARK|NUMBER", lambda match: draw(made[match[0]]), word)
         for word in option.split()]
        for option in draw(st.lists(st.sampled_from(choices), min_size=least, max_size=most))
    ]  # fmt: skip


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[str], str]:
    """The words of a line, and the script with it: variables above, comments, continued lines."""
    launcher = draw(st.sampled_from(["mpirun", "mpiexec.hydra", "horovodrun"]))
    wrong = draw(options(WRONG, 1, 1)) if draw(st.integers(0, 4)) == 0 else []
    parts = [*draw(options(SIZES, 1, 1)), *draw(options(OPTIONS[launcher], 0, 5)), *wrong]
    chosen = [word for part in draw(st.permutations(parts)) for word in part]
    command = ["python", *draw(st.lists(WORDS, max_size=3))]
    words = [launcher, *chosen, *command]
    if draw(st.integers(0, 3)) == 0:
        docker = [word for part in draw(options(OPTIONS["docker"], 0, 4)) for word in part]
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
