"""Migrate files of users of other charts, of jobs and of launchers, and more."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hvdchart.migrate.convert import migrate_file, read_input
from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.values_schema import values_schema
from tests.support.strategies import damaged

FOLDER = Path(__file__).parent / "files_to_migrate"
PATHS = {path.name: path for path in sorted((FOLDER / "of_users").iterdir())}
# Those files, and files that have each key.
FILES = [*PATHS.values(), *sorted((FOLDER / "every_key").iterdir())]


def load_tree(name: str) -> Any:
    """Return the plain values of the job in one of the YAML files, or of the whole file."""
    return read_input(PATHS[name].read_bytes(), name)[0].plain


@functools.cache
def migrate_path(path: Path) -> Ledger:
    """Return the migration of a file. Callers must not change it."""
    return migrate_file(path.read_bytes(), path.name, values_schema())


def migrate_text(text: str) -> Ledger:
    return migrate_file(text.encode(), "<old>", values_schema())


def migrate_line(text: str) -> Ledger:
    return migrate_file(text.encode(), "<line>", values_schema())


def migrate_tree(tree: Any) -> Ledger:
    return migrate_text(json.dumps(tree))


def migrate_job(**fields: Any) -> Ledger:
    """Return the migration of a small MPIJob. A keyword sets the value at its path, with __ for a
    dot.
    """
    roots: dict[str, dict[str, Any]] = {"metadata": {"name": "job"}, "spec": {}}
    replicas = {}
    for role in ("launcher", "worker"):
        container = roots[f"{role}_container"] = {"name": "main", "image": "team/image:1"}
        pod = roots[f"{role}_pod"] = {"containers": [container]}
        metadata = roots[f"{role}_metadata"] = {}
        replicas[role.title()] = {"template": {"metadata": metadata, "spec": pod}}
    roots["launcher_container"]["command"] = ["mpirun", "train"]
    for path, value in fields.items():
        root, _, key = path.partition("__")
        roots[root][key] = value
    spec = {"mpiReplicaSpecs": replicas, **roots["spec"]}
    head = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    return migrate_tree({**head, "metadata": roots["metadata"], "spec": spec})


def migrate_old(**values: Any) -> Ledger:
    """Return the migration of these values with two workers of an image and a command."""
    worker = {"number": 2, "image": {"repository": "a", "tag": "1"}, **values.pop("worker", {})}
    master = {"args": ["mpirun a"], **values.pop("master", {})}
    return migrate_tree({"worker": worker, "master": master, **values})


WORKER_POD = "spec.mpiReplicaSpecs.Worker.template.spec"
damaged_trees = damaged(
    st.sampled_from([load_tree(name) for name in PATHS if name.endswith(".yaml")])
)
