"""Generated specs: valid ones, and trees of values with any kind of error."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st
from ruamel.yaml import YAML

from devtools.common.repository import EXAMPLE_VALUES

EXAMPLES = [
    YAML(typ="safe", pure=True).load(path) for path in sorted(EXAMPLE_VALUES.glob("*.spec.yaml"))
]
# The chart's own pod is named `master`.
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name != "master"
)
TEXT = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"
    ),
    max_size=12,
)
# Unique texts that a test can find again.
MARKS = st.integers(1000, 9999).map(lambda number: f"zq{number}")
SCALARS = st.one_of(
    MARKS,
    st.none(),
    st.booleans(),
    st.integers(-1, 70000),
    st.integers(10**30, 10**60),
    st.floats(),
    TEXT,
    st.sampled_from(
        [
            "../../etc",
            "/",
            "",
            "yes",
            "no",
            "010",
            "1e3",
            "~",
            "null",
            "=",
            "<<",
            "0x1F",
            "1_000",
            "16Gi",
            "500m",
            "-1",
            "a" * 300,
            "x\ty",
            "\U0001f600",
            "10:30",
            "2026-01-01",
            "#",
            "a: b",
            "None",
            "$(A)",
            "$HOME",
            "{{ .Values.x }}",
        ]
    ),
)
KEYS = st.sampled_from(
    ["name", "image", "env", "args", "limits", "own", "count", "slots", "values"]
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | TEXT, inner, max_size=3),
    max_leaves=6,
)
QUANTITIES = st.sampled_from(["64Mi", "1Gi", "1.5Gi", "384Gi", "2T", 10**9, "100000000"])


def some_of(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a map with any of these keys."""
    maps: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=keys)
    return maps


TUNINGS = some_of(
    ompThreads=st.integers(1, 64),
    intraOpThreads=st.integers(1, 64),
    kmpAffinity=st.just("granularity=fine,compact,1,0"),
    oneDnn=st.booleans(),
    bfloat16=st.booleans(),
    cpu=st.sampled_from([1, "2", "16"]),
    memory=QUANTITIES,
    shm=QUANTITIES,
)
SOURCES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"hostPath": "/mnt/x"},
        {"pvc": "claim"},
        {"nfs": {"server": "nfs.example", "path": "/x"}},
        {"emptyDir": {"sizeLimit": "1Gi"}},
        {"configMap": "settings"},
    ]
)
RIGHT_VALUES = some_of(
    worker=some_of(
        podLabels=st.dictionaries(NAMES, NAMES, max_size=2),
        resources=st.just({"limits": {"memory": None}}),
        nodeSelector=st.just({"node-type": None}),
    ),
    master=some_of(activeDeadlineSeconds=st.sampled_from([None, 60]), args=st.lists(TEXT)),
    securityContext=st.just({"capabilities": {"drop": None}}),
)
TAINT = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
# Alternative values for any example, by their place.
CHANGES: dict[tuple[str | int, ...], st.SearchStrategy[Any]] = {
    ("name",): NAMES,
    ("nodes", 0, "coresPerSocket"): st.integers(28, 128),
    ("nodes", 0, "threadsPerCore"): st.sampled_from([1, 2]),
    ("nodes", 0, "memory"): st.sampled_from(["384Gi", "2T", 10**12]),
    ("nodes", 0, "nodeSelector"): st.just({"node-type": "highmem", "example.com/zone": ""}),
    ("nodes", 0, "tolerations"): st.just([TAINT, {"key": "spot", "value": "a"}]),
    ("nodes", 0, "affinity"): st.just({"podAffinity": {}}),
    ("nodes", 0, "interface"): st.sampled_from(["eth0", "ib0"]),
    ("nodes", 0, "rdma"): st.just({"resource": "rdma/hca", "count": 2}),
    ("nodes", 0, "tuning"): TUNINGS,
    ("tuning",): TUNINGS,
    ("train", "command"): st.lists(TEXT, min_size=1, max_size=4),
    ("train", "env"): st.dictionaries(st.sampled_from(["A", "B_1", "_C"]), TEXT, max_size=3),
    ("train", "backoffLimit"): st.integers(0, 5),
    ("train", "batchSize"): st.integers(1, 512),
    ("horovod",): some_of(autotune=st.booleans(), cycleTimeMs=st.sampled_from([1, 3.5])),
    ("launch", "workersTimeoutSeconds"): st.integers(1, 600),
    ("volumes", "x"): SOURCES.map(lambda source: {**source, "mountPath": "/x", "subPath": "a/b"}),
    ("values",): RIGHT_VALUES,
}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Return a valid spec, an example with some changes: reading it must not raise."""
    spec: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(EXAMPLES)))
    for path in draw(st.lists(st.sampled_from(list(CHANGES)), max_size=8, unique=True)):
        parent: Any = spec
        for step in path[:-1]:
            parent = parent.setdefault(step, {}) if isinstance(parent, dict) else parent[step]
        parent[path[-1]] = draw(CHANGES[path])
    return spec


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return each map and list with each of its keys and indices."""
    pairs: list[tuple[Any, Any]] = []
    for step, child in value.items() if isinstance(value, dict) else enumerate(value):
        pairs.append((value, step))
        if isinstance(child, dict | list):
            pairs += _places(child)
    return pairs


@st.composite
def damaged(draw: st.DrawFn, trees: st.SearchStrategy[Any]) -> Any:
    """Return a tree in which values are replaced, keys misspelt, added or removed, texts marked."""
    tree = copy.deepcopy(draw(trees))
    for _ in range(draw(st.integers(1, 4))):
        pairs = _places(tree)
        if not pairs:
            break
        parent, step = pairs[draw(st.integers(0, len(pairs) - 1))]
        kind = draw(st.sampled_from(["replace", "mark", "misspell", "add", "remove"]))
        if kind == "mark" and isinstance(parent[step], str):
            parent[step] = draw(MARKS)
        elif kind == "misspell" and isinstance(parent, dict) and len(step) > 3:
            at = draw(st.integers(1, len(step) - 2))
            parent[step[:at] + step[at + 1] + step[at] + step[at + 2 :]] = parent.pop(step)
        elif kind == "add" and isinstance(parent, dict):
            parent[draw(KEYS | TEXT)] = draw(ANYTHING)
        elif kind == "remove":
            del parent[step]
        else:
            parent[step] = draw(ANYTHING)
    return tree


def as_json(spec: Any) -> bytes:
    return json.dumps(spec, ensure_ascii=False).encode("utf-8", "surrogatepass")
