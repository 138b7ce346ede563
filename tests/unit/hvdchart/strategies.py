"""Generated specs: right ones, and ones in which anything may be wrong."""

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
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(10**30, 10**60), st.floats(), TEXT,
    st.sampled_from([
        "../../etc", "/a/../b", "/", "", "no", "010", "1e3", "~", "null", "=", "<<", "0x1F",
        "1_000", "16Gi", "500m", "-1", "a" * 300, "x\ty", "é", "\U0001f600", "10:30",
        "2026-01-01", "#", "a: b",
    ]),
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
QUANTITIES = st.sampled_from(["64Mi", "1Gi", "1.5Gi", "384Gi", "2T", 10**9, "100000000"])


def some_of(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A map with any of these keys."""
    maps: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=keys)
    return maps


@st.composite
def tunings(draw: st.DrawFn) -> dict[str, Any]:
    """A right tuning block, without `slots` and `binding`, which depend on the other groups."""
    tuning: dict[str, Any] = draw(some_of(
        ompThreads=st.integers(1, 64),
        intraOpThreads=st.integers(1, 64),
        interOpThreads=st.integers(1, 4),
        kmpBlocktime=st.sampled_from([0, 1, 200]),
        kmpAffinity=st.just("granularity=fine,compact,1,0"),
        oneDnn=st.booleans(),
        bfloat16=st.booleans(),
        cpu=st.sampled_from([1, "2", "16"]),
        memory=QUANTITIES,
        shm=QUANTITIES,
    ))  # fmt: skip
    return tuning


@st.composite
def groups(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A right node group: nodes with GPUs, or CPU nodes, or slices of a shared machine."""
    group: dict[str, Any] = {"name": name, "count": draw(st.integers(1, 128))}
    kind = draw(st.sampled_from(["cpu", "gpu", "gpu with cores", "shared"]))
    if kind != "gpu":
        group["coresPerSocket"] = draw(st.integers(1, 128))
        group |= draw(some_of(
            sockets=st.integers(1, 8),
            threadsPerCore=st.sampled_from([1, 2, 4]),
        ))  # fmt: skip
    if kind == "cpu" and draw(st.booleans()):
        group["reserved"] = draw(st.sampled_from([{"cpu": 0}, {"cpu": "250m", "memory": "16Mi"}]))
    if kind.startswith("gpu"):
        group["gpus"] = draw(st.integers(1, 16))
        resources = ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb"]
        group |= draw(some_of(gpuResource=st.sampled_from(resources)))
    if kind == "shared":
        group["shared"] = True
    if draw(st.booleans()):
        group["memory"] = draw(QUANTITIES)
    taint = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    more: dict[str, Any] = draw(some_of(
        nodeSelector=st.just({"node-type": "highmem", "example.com/zone": ""}),
        tolerations=st.just([taint, {"key": "spot", "value": "a"}]),
        affinity=st.just({"podAffinity": {}}),
        interface=st.sampled_from(["eth0", "ib0"]),
        rdma=st.just({"resource": "rdma/hca", "count": 2}),
        tuning=tunings(),
    ))  # fmt: skip
    return group | more


SOURCES: st.SearchStrategy[dict[str, Any]] = st.sampled_from([
    {"hostPath": "/mnt/x"}, {"pvc": "claim"}, {"nfs": {"server": "nfs.example", "path": "/x"}},
    {"emptyDir": {}}, {"emptyDir": {"sizeLimit": "1Gi"}}, {"configMap": "settings"},
])  # fmt: skip


@st.composite
def volumes(draw: st.DrawFn, groups: list[str]) -> dict[str, Any]:
    """Right volumes of these groups."""
    chosen = {}
    for name in draw(st.lists(st.sampled_from(["data", "output", "x"]), unique=True)):
        some = st.lists(st.sampled_from(groups), unique=True)
        more = draw(some_of(subPath=st.just("a/b"), groups=some))
        if name != "output" and draw(st.booleans()):
            more["readOnly"] = True
        if name == "x" or draw(st.booleans()):
            more["mountPath"] = f"/{name}"
        chosen[name] = {**draw(SOURCES), **more}
    return chosen


RIGHT_VALUES = some_of(
    worker=some_of(
        podLabels=st.dictionaries(NAMES, NAMES, max_size=2),
        resources=st.just({"limits": {"memory": None}}),
        nodeSelector=st.just({"node-type": None}),
    ),
    master=some_of(activeDeadlineSeconds=st.sampled_from([None, 60]), args=st.lists(TEXT)),
    securityContext=st.just({"capabilities": {"drop": None}}),
)
WRONG_VALUES = some_of(
    worker=st.dictionaries(
        st.sampled_from(["number", "slots", "spares", "env", "resources", "nonsense"]),
        ANYTHING,
        max_size=2,
    ),
    master=st.dictionaries(st.sampled_from(["args", "backoffLimit"]), ANYTHING, max_size=2),
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
def launches(
    draw: st.DrawFn, nodes: list[dict[str, Any]], everywhere: dict[str, Any]
) -> dict[str, Any]:
    """A right launch block; adds spares to the groups of a run that is not elastic."""
    mode = draw(st.sampled_from(list(OPTIONS)))
    launch: dict[str, Any] = draw(some_of(hostsTimeoutSeconds=st.integers(1, 600)))
    if mode != "mpirun" or draw(st.booleans()):
        launch["mode"] = mode
    choices = draw(st.lists(st.sampled_from(OPTIONS[mode]), unique=True))
    if choices:
        launch["options"] = " ".join(choices).split()
    if mode == "elastic":
        total = sum(group["count"] * slots(group, everywhere) for group in nodes)
        limits = some_of(minRanks=st.integers(1, total), maxRanks=st.integers(total, 2 * total))
        launch |= draw(some_of(elastic=limits))
    else:
        for group in nodes:
            group.update(draw(some_of(spares=st.integers(0, 9))))
    return launch


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A right spec: reading it must not raise."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    nodes = [draw(groups(name)) for name in names]
    everywhere = draw(tunings())
    if not any("gpus" in group for group in nodes) and draw(st.booleans()):
        everywhere["slots"] = draw(st.integers(1, 8))
    for group in nodes:
        if draw(st.booleans()):
            group.setdefault("tuning", {})["slots"] = group.get("gpus") or draw(st.integers(1, 8))
    launch = draw(launches(nodes, everywhere))
    spec: dict[str, Any] = {
        "apiVersion": "hvdchart/v1",
        "name": draw(NAMES),
        "nodes": nodes,
        "train": {"command": draw(st.lists(TEXT, min_size=1, max_size=4))},
    }
    spec |= {key: block for key, block in (("launch", launch), ("tuning", everywhere)) if block}
    digest = draw(some_of(digest=st.just(f"sha256:{'0a' * 32}")))
    image = {"repository": "registry.example:5000/a/b", "tag": "1.0", "pullSecrets": ["x"]}
    spec["image"] = {**image, **digest}
    spec |= draw(some_of(
        volumes=volumes(names),
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
        deadlineSeconds=st.integers(1, 3600),
        batchSize=st.integers(1, 512),
    ))  # fmt: skip
    output = spec.get("volumes", {}).get("output")
    if output is not None:
        spec["train"] |= draw(some_of(checkpoints=st.just("run/1")))
        if set(output.get("groups") or names) >= set(names) and draw(st.booleans()):
            spec.setdefault("horovod", {})["timeline"] = True
    return spec


@st.composite
def damaged_specs(draw: st.DrawFn) -> dict[str, Any]:
    """A right spec with one to three values replaced or added, anywhere."""
    spec = copy.deepcopy(draw(specs()))
    if draw(st.booleans()):
        spec["values"] = draw(WRONG_VALUES)
    for _ in range(draw(st.integers(1, 3))):
        place: Any = spec
        for _ in range(draw(st.integers(0, 5))):
            inside = [v for v in (place.values() if isinstance(place, dict) else place)
                      if isinstance(v, dict | list) and v]  # fmt: skip
            if not inside:
                break
            place = draw(st.sampled_from(inside))
        if isinstance(place, list):
            place[draw(st.integers(0, len(place) - 1)) if place else 0 :] = [draw(ANYTHING)]
        else:
            known = draw(st.sampled_from([*place, "count", "slots", "values"]))
            place[draw(st.one_of(st.just(known), TEXT))] = draw(ANYTHING)
    return spec
