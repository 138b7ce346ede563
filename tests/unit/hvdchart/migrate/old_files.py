"""Files to migrate: four as users of the old charts and of MPI Operator write them, and more."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hvdchart.migrate.convert import Migration, migrate
from hvdchart.migrate.ledger import leaves
from hvdchart.spec.paths import dotted
from hvdchart.spec.yaml_tree import Node, parse
from hvdchart.values.schema import values_schema

NAMES = sorted(path.name for path in (Path(__file__).parent / "old").glob("*.yaml"))
PATHS = {name: Path(__file__).parent / "old" / name for name in NAMES}


@functools.cache
def tree_of(name: str) -> Node:
    """The parsed tree of one of the four files."""
    return parse(PATHS[name].read_bytes(), name)


@functools.cache
def migrate_file(name: str) -> Migration:
    """The migration of one of the four files; not to be changed."""
    return migrate(tree_of(name), values_schema())


def migrate_text(text: str) -> Migration:
    """The migration of a YAML text."""
    return migrate(parse(text.encode(), "<old>"), values_schema())


def migrate_tree(tree: Any) -> Migration:
    """The migration of maps and lists."""
    return migrate_text(json.dumps(tree))


def results(migration: Migration) -> dict[str, tuple[str, str, str]]:
    """Outcome, new path and reason by old path."""
    return {entry.old: (entry.outcome, entry.new, entry.reason) for entry in migration.entries}


def assert_every_value_has_an_entry(tree: Any, migration: Migration) -> None:
    reported = {entry.old for entry in migration.entries}
    assert [path for leaf in leaves(tree, ()) if (path := dotted(leaf)) not in reported] == []


def mpijob(**fields: Any) -> dict[str, Any]:
    """A small MPIJob; each keyword replaces or adds what its path, with __ for a dot, names."""
    container = {"name": "main", "image": "team/image:1"}
    tree: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "job"},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {
                    "template": {
                        "spec": {"containers": [{**container, "command": ["mpirun", "train"]}]}
                    }
                },
                "Worker": {"template": {"spec": {"containers": [dict(container)]}}},
            }
        },
    }
    replicas = tree["spec"]["mpiReplicaSpecs"]
    roots = {
        "spec": tree["spec"],
        "metadata": tree["metadata"],
        "worker": replicas["Worker"],
        "launcher": replicas["Launcher"],
        "worker_pod": replicas["Worker"]["template"]["spec"],
        "launcher_pod": replicas["Launcher"]["template"]["spec"],
        "worker_container": replicas["Worker"]["template"]["spec"]["containers"][0],
        "launcher_container": replicas["Launcher"]["template"]["spec"]["containers"][0],
    }
    for path, value in fields.items():
        root, _, key = path.partition("__")
        roots[root][key] = value
    return tree


def migrate_job(**fields: Any) -> Migration:
    """The migration of a small MPIJob with these fields."""
    return migrate_tree(mpijob(**fields))


def migrate_old(**values: Any) -> Migration:
    """The migration of values with two workers of an image, a command, and these."""
    worker = {"number": 2, "image": {"repository": "a", "tag": "1"}, **values.pop("worker", {})}
    master = {"args": ["mpirun a"], **values.pop("master", {})}
    return migrate_tree({"worker": worker, "master": master, **values})


WORKER_POD = "spec.mpiReplicaSpecs.Worker.template.spec"
LAUNCHER_POD = "spec.mpiReplicaSpecs.Launcher.template.spec"
WORKER = f"{WORKER_POD}.containers[0]"
LAUNCHER = f"{LAUNCHER_POD}.containers[0]"

_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 70000), st.text(max_size=8),
    st.sampled_from(["yes", "16Gi", "mpirun -np 4 python a.py", "a:b", "None", "OpenMPI"]),
)  # fmt: skip
_TREES = st.recursive(
    _SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from(["name", "image", "env", "args", "limits", "own"]), below),
    ),
    max_leaves=6,
)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), _TREES), max_size=4)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a tree: the map or list, and the key or index in it."""
    places: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for step, child in items:
        places.append((value, step))
        if isinstance(child, dict | list):
            places += _places(child)
    return places


def change_file(name: str, changes: list[tuple[int, Any]]) -> Any:
    """The tree of one of the four files with other values at some of its places."""
    tree = tree_of(name).plain
    for place, value in changes:
        parent, step = (places := _places(tree))[place % len(places)]
        parent[step] = copy.deepcopy(value)
    return tree
