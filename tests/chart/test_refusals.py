"""The chart refuses invalid values, and the message names the key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devtools.docs_gen.chart_docs import load_source
from tests.chart.render import CHART, Values, helm_template, refusal


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"wroker": {}}, "wroker"),
        ({"worker": {"nubmer": 2}}, "nubmer"),
        ({"workerGroups": [{"name": "a", "slot": 2}]}, "slot"),
        ({"launch": {"mode": "mpiexec"}}, "mode"),
        ({"worker": {"number": "two"}}, "number"),
        ({"ssh": {"port": 22}}, "port"),
    ],
)
def test_schema_error_names_the_key(helm: str, values: Values, key: str) -> None:
    done = helm_template(values, helm=helm)
    assert done.returncode != 0
    assert key in done.stderr


@pytest.mark.parametrize(
    ("values", "release", "words"),
    [
        (
            {"worker": {"slots": 2, "resources": {"limits": {"nvidia.com/gpu": 4}}}},
            "hvd",
            ["slots is 2", 'resources.limits["nvidia.com/gpu"] is 4'],
        ),
        ({"workerGroups": [{"name": "a"}, {"name": "a"}]}, "hvd", ['two groups named "a"']),
        ({"workerGroups": [{"name": "master"}]}, "hvd", ["workerGroups[].name", "master"]),
        ({}, "r" * 48, ["48 characters", "at most 47"]),
        (
            {"workerGroups": [{"name": "g" * 12}]},
            "r" * 40,
            ["53 characters", "at most 52"],
        ),
        ({}, "my.release", ["my.release", "host names"]),
        ({"launch": {"mode": "custom"}}, "hvd", ["launch.mode", "master.args"]),
        (
            {"launch": {"mode": "elastic", "elastic": {"minRanks": 4, "maxRanks": 2}}},
            "hvd",
            ["launch.elastic.minRanks is 4", "launch.elastic.maxRanks is 2"],
        ),
        (
            {"worker": {"number": 4}, "launch": {"mode": "elastic", "elastic": {"maxRanks": 2}}},
            "hvd",
            ["4 ranks", "launch.elastic.maxRanks is 2"],
        ),
        (
            {"launch": {"mode": "elastic", "elastic": {"maxRanks": 3000000}}},
            "hvd",
            ["launch.elastic.maxRanks is 3000000", "slots", "at most 10000"],
        ),
        (
            {"workerGroups": [{"name": "a", "number": 9000}, {"name": "b", "number": 2000}]},
            "hvd",
            ["workerGroups", "11000 hosts", "at most 10000"],
        ),
        (
            {"launch": {"elastic": {"maxRanks": 2}}},
            "hvd",
            ["launch.elastic", "launch.mode is mpirun"],
        ),
        (
            {"launch": {"mode": "elastic"}, "serviceAccount": {"create": False}},
            "hvd",
            ["launch.mode", "serviceAccount"],
        ),
        (
            {"launch": {"mode": "elastic"}, "hostNetwork": True},
            "hvd",
            ["launch.mode is elastic", "hostNetwork", "network.interface"],
        ),
        (
            {"worker": {"number": 40, "slots": 2}, "launch": {"mode": "horovodrun"}},
            "hvd",
            ["requests.memory is 256Mi", "launch.mode is horovodrun", "80 ranks", "to 288Mi"],
        ),
        (
            {
                "launch": {"mode": "elastic", "elastic": {"maxRanks": 2000}},
                "master": {"resources": {"requests": None, "limits": {"memory": "4.1e9"}}},
            },
            "hvd",
            ["limits.memory is 4.1e9", "launch.mode is elastic", "2000 ranks", "to 4128Mi"],
        ),
        ({"launch": {"options": ["-np", "4"]}}, "hvd", ['"np"', "worker.number", "worker.slots"]),
        (
            {"launch": {"mode": "horovodrun", "options": ["--ssh-port=22"]}},
            "hvd",
            ["launch.options", '"ssh-port"', "ssh.port"],
        ),
        (
            {"launch": {"mode": "horovodrun", "options": ["--mca", "pml", "ucx"]}},
            "hvd",
            ["launch.options", '"mca"', "launch.mode is horovodrun"],
        ),
        (
            {
                "launch": {"mode": "horovodrun", "options": ["--network-interfaces", "eth0"]},
                "network": {"interface": "eth1"},
            },
            "hvd",
            ["launch.options", '"network-interfaces"', 'network.interface is "eth1"'],
        ),
        (
            {"launch": {"options": ["--gloo"]}},
            "hvd",
            ["launch.options", '"gloo"', "launch.mode is mpirun"],
        ),
        (
            {"launch": {"mode": "elastic", "options": ["--mpi"]}},
            "hvd",
            ["launch.options", '"mpi"', "launch.mode is elastic"],
        ),
        (
            {"launch": {"mode": "custom", "options": ["-v"]}, "master": {"args": ["mpirun"]}},
            "hvd",
            ["launch.mode is custom", "launch.options", "$(LAUNCH)"],
        ),
        (
            {"master": {"args": ["time", "$(LAUNCH)"]}},
            "hvd",
            ["master.args", "$(LAUNCH)", "launch.mode is mpirun"],
        ),
        (
            {"launch": {"binding": {"to": "core"}}},
            "hvd",
            ["launch.binding.to is core", "launch.binding.coresPerRank"],
        ),
        (
            {"launch": {"binding": {"to": "socket"}}},
            "hvd",
            ["launch.binding.to is socket", "launch.binding.ranksPerSocket"],
        ),
        (
            {"launch": {"binding": {"to": "socket", "ranksPerSocket": 1, "coresPerRank": 2}}},
            "hvd",
            ["launch.binding.coresPerRank is 2", "launch.binding.to is socket"],
        ),
        (
            {"launch": {"binding": {"ranksPerSocket": 1}}},
            "hvd",
            ["launch.binding.ranksPerSocket is 1", "launch.binding.to is none"],
        ),
        (
            {
                "launch": {
                    "binding": {"to": "core", "coresPerRank": 2},
                    "options": ["--bind-to=socket"],
                }
            },
            "hvd",
            ["launch.binding.to is core", "launch.options", '"bind-to"'],
        ),
        (
            {"master": {"ttlSecondsAfterFinished": 60}},
            "hvd",
            ["master.ttlSecondsAfterFinished", "cleanup is OnSuccess"],
        ),
        (
            {"cleanup": "Always", "serviceAccount": {"create": False}},
            "hvd",
            ["cleanup is Always", "serviceAccount"],
        ),
        ({"podSecurityContext": {"runAsUser": 0}}, "hvd", ["runAsUser", "runAsNonRoot"]),
    ],
)
def test_contradiction_names_both_keys(values: Values, release: str, words: list[str]) -> None:
    message = refusal(values, release)
    for word in words:
        assert word in message


@pytest.mark.parametrize(("key", "instead"), load_source()["retired"].items())
def test_retired_key_is_refused_with_what_to_use_instead(key: str, instead: str) -> None:
    values: Any = True
    for name in reversed(key.split(".")):
        values = {name: values}
    assert f"{key} is a key of older charts; use instead: {instead}" in refusal(values, "hvd")


def keys(node: dict[str, Any], prefix: str = "") -> set[str]:
    """Return the dotted name of each key of a document or schema."""
    paths = set()
    for name, child in node.items():
        paths.add(prefix + name)
        if isinstance(child, dict):
            paths |= keys(child, f"{prefix}{name}.")
    return paths


def schema_keys(node: dict[str, Any], prefix: str = "") -> set[str]:
    """Return the dotted name of each property of the schema, without those of definitions."""
    paths = set()
    for name, child in node.get("properties", {}).items():
        paths.add(prefix + name)
        paths |= schema_keys(child, f"{prefix}{name}.")
    return paths


def test_values_and_schema_have_the_same_keys() -> None:
    from ruamel.yaml import YAML

    values = YAML(typ="safe").load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    described = schema_keys(schema) - {"enabled", "global", *load_source()["retired"]}
    # The schema does not describe the keys of Kubernetes' own objects.
    opaque = tuple(
        f"{key}." for key in described if key not in {k.rpartition(".")[0] for k in described}
    )
    used = {key for key in keys(values) if not key.startswith(opaque)}
    # A key that takes a boolean or a map has the boolean as its default.
    scalars = used - {key.rpartition(".")[0] for key in used}
    described = {key for key in described if key.rpartition(".")[0] not in scalars}
    assert used == described
