"""Generated specs: right ones, and trees of values in which anything may be wrong."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

# The chart names its launcher `master`.
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name != "master"
)
TEXT = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"
    ),
    max_size=12,
)
# Texts that a test finds again.
MARKS = st.integers(1000, 9999).map(lambda number: f"zq{number}")
SCALARS = st.one_of(
    MARKS, st.none(), st.booleans(), st.integers(-1, 70000), st.integers(10**30, 10**60),
    st.floats(), TEXT,
    st.sampled_from([
        "../../etc", "/", "", "yes", "no", "010", "1e3", "~", "null", "=", "<<", "0x1F", "1_000",
        "16Gi", "500m", "-1", "a" * 300, "x\ty", "\U0001f600", "10:30", "2026-01-01", "#", "a: b",
        "None", "$(A)", "$HOME", "{{ .Values.x }}",
    ]),
)  # fmt: skip
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
    """A map with any of these keys."""
    maps: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=keys)
    return maps


# Without `slots` and `binding`, which depend on the other groups.
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


@st.composite
def groups(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A right node group: nodes with GPUs, or CPU nodes, or slices of a shared machine."""
    group: dict[str, Any] = {"name": name, "count": draw(st.integers(1, 128))}
    kind = draw(st.sampled_from(["cpu", "gpu", "gpu with cores", "shared"]))
    if kind != "gpu":
        group["coresPerSocket"] = draw(st.integers(1, 128))
        group |= draw(some_of(sockets=st.integers(1, 8), threadsPerCore=st.sampled_from([1, 2])))
    if kind == "cpu" and draw(st.booleans()):
        group["reserved"] = draw(st.sampled_from([{"cpu": 0}, {"cpu": "250m", "memory": "16Mi"}]))
    if kind.startswith("gpu"):
        group["gpus"] = draw(st.integers(1, 16))
        group |= draw(some_of(gpuResource=st.just("nvidia.com/mig-1g.5gb")))
    if kind == "shared":
        group["shared"] = True
    taint = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    more: dict[str, Any] = draw(some_of(
        memory=QUANTITIES,
        nodeSelector=st.just({"node-type": "highmem", "example.com/zone": ""}),
        tolerations=st.just([taint, {"key": "spot", "value": "a"}]),
        affinity=st.just({"podAffinity": {}}),
        interface=st.sampled_from(["eth0", "ib0"]),
        rdma=st.just({"resource": "rdma/hca", "count": 2}),
        tuning=TUNINGS,
    ))  # fmt: skip
    return group | more


SOURCES: st.SearchStrategy[dict[str, Any]] = st.sampled_from([
    {"hostPath": "/mnt/x"}, {"pvc": "claim"}, {"nfs": {"server": "nfs.example", "path": "/x"}},
    {"emptyDir": {}}, {"emptyDir": {"sizeLimit": "1Gi"}}, {"configMap": "settings"},
])  # fmt: skip
RIGHT_VALUES = some_of(
    worker=some_of(
        podLabels=st.dictionaries(NAMES, NAMES, max_size=2),
        resources=st.just({"limits": {"memory": None}}),
        nodeSelector=st.just({"node-type": None}),
    ),
    master=some_of(activeDeadlineSeconds=st.sampled_from([None, 60]), args=st.lists(TEXT)),
    securityContext=st.just({"capabilities": {"drop": None}}),
)
# Options that each mode's launchers have, and that set nothing which the chart sets.
OPTIONS = {
    "mpirun": ["--mca pml ob1", "--tag-output", "-x A", "--oversubscribe"],
    "horovodrun": ["--gloo", "--start-timeout 60", "--cycle-time-ms=2", "--disable-cache"],
    "elastic": ["--reset-limit 3", "--elastic-timeout 60", "--log-level DEBUG"],
}


def slots(group: dict[str, Any], everywhere: dict[str, Any]) -> int:
    """Ranks on a node of a group."""
    tuned = group.get("tuning", {}).get("slots") or everywhere.get("slots")
    return int(tuned or group.get("gpus") or group.get("sockets", 1))


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A right spec: reading it must not raise."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    nodes = [draw(groups(name)) for name in names]
    everywhere = draw(TUNINGS)
    if not any("gpus" in group for group in nodes) and draw(st.booleans()):
        everywhere["slots"] = draw(st.integers(1, 8))
    for group in nodes:
        if draw(st.booleans()):
            group.setdefault("tuning", {})["slots"] = group.get("gpus") or draw(st.integers(1, 8))
    mode = draw(st.sampled_from(list(OPTIONS)))
    options = draw(st.lists(st.sampled_from(OPTIONS[mode]), unique=True))
    launch: dict[str, Any] = {"mode": mode, "options": " ".join(options).split()}
    if mode == "elastic":
        total = sum(group["count"] * slots(group, everywhere) for group in nodes)
        limits = some_of(minRanks=st.integers(1, total), maxRanks=st.integers(total, 2 * total))
        launch["elastic"] = draw(limits)
    else:
        for group in nodes:
            group.update(draw(some_of(spares=st.integers(0, 9))))
    volumes = {}
    for name in draw(st.lists(st.sampled_from(["data", "output", "x"]), unique=True)):
        more = draw(some_of(subPath=st.just("a/b"), groups=st.lists(st.sampled_from(names))))
        volumes[name] = {**draw(SOURCES), **more, "mountPath": f"/{name}"}
    spec: dict[str, Any] = {
        "apiVersion": "hvdchart/v1",
        "name": draw(NAMES),
        "nodes": nodes,
        "train": {"command": draw(st.lists(TEXT, min_size=1, max_size=4))},
        "launch": launch,
        "tuning": everywhere,
        "image": {"repository": "registry.example:5000/a/b", "tag": "1.0", "pullSecrets": ["x"]},
        "volumes": volumes,
    }
    spec |= draw(some_of(
        horovod=some_of(
            autotune=st.booleans(),
            fusionThreshold=st.sampled_from([0, "64Mi", "1Gi"]),
            cycleTime=st.sampled_from([1, 3.5]),
        ),
        values=RIGHT_VALUES,
    ))  # fmt: skip
    spec["train"] |= draw(some_of(
        env=st.dictionaries(st.sampled_from(["A", "B_1", "_C"]), TEXT, max_size=3),
        retries=st.integers(0, 5),
        batchSize=st.integers(1, 512),
    ))  # fmt: skip
    if "output" in volumes:
        spec["train"] |= draw(some_of(checkpoints=st.just("run/1")))
    return spec


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Each map and list with each of its keys and indices."""
    pairs: list[tuple[Any, Any]] = []
    for step, child in value.items() if isinstance(value, dict) else enumerate(value):
        pairs.append((value, step))
        if isinstance(child, dict | list):
            pairs += _places(child)
    return pairs


@st.composite
def damaged(draw: st.DrawFn, trees: st.SearchStrategy[Any]) -> Any:
    """A tree in which values are replaced, keys misspelt, added or removed, texts marked."""
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
