"""Converts values of another chart, a job's manifest or a command line to values of this chart.

Pure. Each value of the input has an entry in the report; a file of an unknown kind is refused, and
the message says what it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate import arena, aws, intel_tlt, nauta, stable_chart
from hvdchart.migrate.documents import Input, read_input
from hvdchart.migrate.ledger import Entry, Ledger
from hvdchart.migrate.mpijob import API_VERSIONS, migrate_mpijob
from hvdchart.migrate.script import Script, script_tree
from hvdchart.migrate.volcano import API_VERSION, migrate_volcano
from hvdchart.spec.paths import KeyPath, place_of, value_at
from hvdchart.spec.patterns import RELEASE_NAME
from hvdchart.spec.yaml_tree import Node, Plain
from hvdchart.text import join_names


@dataclass(frozen=True)
class Migration:
    """The chart's values, an entry for each value of the input, and what to check by hand.

    `source` is what the input is; `release` and `namespace` are empty when it does not name them.
    """

    source: str
    values: Mapping[str, Plain]
    entries: tuple[Entry, ...]
    checks: tuple[str, ...]
    release: str
    namespace: str


@dataclass(frozen=True)
class Dialect:
    """Values of one chart: it is recognised by `needed` of its marks."""

    name: str
    marks: tuple[KeyPath, ...]
    needed: int
    read: Callable[[Ledger], Any]


_DIALECTS = (
    Dialect("the old horovod chart", stable_chart.MARKS, 1, stable_chart.migrate_chart),
    Dialect(arena.NAME, arena.MARKS, 2, arena.migrate_arena),
    Dialect(nauta.NAME, nauta.MARKS, 2, nauta.migrate_nauta),
    Dialect(intel_tlt.NAME, intel_tlt.MARKS, 3, intel_tlt.migrate_tlt),
    Dialect(aws.NAME, aws.MARKS, 2, aws.migrate_aws),
)
_THIS_CHART_KEYS = ("workerGroups", "launch", "shm", "podSecurityContext", "cleanup")
_RENDER = "or what its chart renders: helm template RELEASE CHART -f FILE | hvdchart migrate -"
_EXPECTED = (
    f"values of {', '.join(dialect.name for dialect in _DIALECTS)}; an MPIJob "
    f"({', '.join(API_VERSIONS)}) or a Volcano Job; {_RENDER}; a shell script needs --command-line"
)
# Other files that people have, by keys of theirs, and what they look like.
_LOOKS = (
    (("services",), "a Compose file"),
    (("maskrcnn",), "values of AWS's Mask R-CNN chart, which makes an MPIJob"),
    (("mpiWorker",), "values of Alibaba's first tf-horovod chart"),
    (("jobs",), "a workflow"),
    (("cluster_name",), "a configuration of Ray"),
    (("nodes",), "a spec of hvdchart, for hvdchart render"),
    (("template_parameters",), "parameters of an mlt template; see --command-line"),
    (("TFHUB_CACHE",), "a configuration of TensorFlow Hub"),
)
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


def migrate_file(data: bytes, file: str, schema: Mapping[str, Any]) -> Migration:
    """Migrate the content of a file; `schema` is the JSON schema of the chart's values.

    Raises SpecError for a file of another kind, and for a value of the wrong type.
    """
    return _migrate(read_input(data, file, is_job), schema)


def migrate(root: Node, schema: Mapping[str, Any]) -> Migration:
    """Migrate a YAML tree; as `migrate_file`."""
    return _migrate(Input(root), schema)


def migrate_command_line(data: bytes, file: str, schema: Mapping[str, Any]) -> Migration:
    """Migrate a typed command line, or a shell script with one. Raises SpecError."""
    root, statements = script_tree(data, file)
    ledger = Ledger(root, schema)
    return _finish("command line", ledger, Script(ledger, statements).migrate())


def is_job(root: Node) -> bool:
    """Whether a document is a job that migrate reads."""
    return _job_reader(root.plain) is not None


def _job_reader(tree: Plain) -> tuple[str, Callable[[Ledger], tuple[str, str]]] | None:
    kind = (tree.get("kind"), tree.get("apiVersion")) if isinstance(tree, dict) else ("", "")
    if kind[0] == "MPIJob" and kind[1] in API_VERSIONS:
        return "MPIJob", migrate_mpijob
    if kind == ("Job", API_VERSION):
        return "Volcano Job", migrate_volcano
    return None


def _migrate(given: Input, schema: Mapping[str, Any]) -> Migration:
    ledger = Ledger(given.root, schema)
    for other in given.others:
        ledger.add_check(f"the file also has {other}: apply it yourself if the run needs it")
    reader = _job_reader(ledger.tree)
    if reader is not None:
        return _finish(reader[0], ledger, reader[1](ledger))
    dialect = _find_dialect(ledger)
    names = dialect.read(ledger)
    if isinstance(names, str):
        names = (names, "")
    return _finish(dialect.name, ledger, names or ("", ""))


def _finish(source: str, ledger: Ledger, names: tuple[str, str]) -> Migration:
    name, namespace = names
    release = _NOT_IN_NAMES.sub("-", name.lower()).strip("-")[: RELEASE_NAME.longest].strip("-")
    if release[:1].isdigit():
        release = f"run-{release}"[: RELEASE_NAME.longest].rstrip("-")
    if release != name:
        ledger.add_check(f"the release is called {release}: {name} is not a valid release name")
    return Migration(
        source, ledger.values, tuple(ledger.entries), tuple(ledger.checks), release, namespace
    )


def _find_dialect(ledger: Ledger) -> Dialect:
    place = str(place_of(ledger.root, ()))
    if not isinstance(ledger.tree, dict):
        raise SpecError(place, "", f"got {ledger.root.shown}", _EXPECTED)
    if "kind" in ledger.tree or "apiVersion" in ledger.tree:
        kind, version = ledger.tree.get("kind"), ledger.tree.get("apiVersion")
        raise SpecError(place, "", f"got apiVersion {version!r}, kind {kind!r}", _EXPECTED)
    for key in _THIS_CHART_KEYS:
        if key in ledger.tree and not _score(ledger, arena.MARKS) > 1:
            problem = f"{key} is a key of this chart: the file needs no migration"
            raise SpecError(str(place_of(ledger.root, (key,))), "", problem, _EXPECTED)
    scores = [(_score(ledger, d.marks) / d.needed, _score(ledger, d.marks), d) for d in _DIALECTS]
    candidates = [(marks, dialect) for share, marks, dialect in scores if share >= 1]
    if candidates:
        return max(candidates, key=lambda item: item[0])[1]
    keys = join_names(sorted(ledger.tree), 6) or "none"
    looks = [text for path, text in _LOOKS if _has(ledger, path)]
    share, _, nearest = max(scores, key=lambda item: item[0])
    if looks:
        problem = f"it looks like {looks[0]}"
    elif share:
        marks = [path[-1] for path in nearest.marks if _has(ledger, path)]
        problem = f"it has {marks[0]} in common with {nearest.name}, and too little else"
    else:
        problem = "no chart that migrate knows has them"
    raise SpecError(place, "", f"its keys are {keys}; {problem}", _EXPECTED)


def _score(ledger: Ledger, marks: tuple[KeyPath, ...]) -> int:
    return sum(_has(ledger, path) for path in marks)


def _has(ledger: Ledger, path: KeyPath) -> bool:
    # Not by the ledger's own look-ups, which remember the keys that the dialect's reader knows.
    parent = value_at(ledger.tree, path[:-1])
    return isinstance(parent, dict) and path[-1] in parent
