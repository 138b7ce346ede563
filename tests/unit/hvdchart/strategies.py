"""Generated specs: mostly right ones, and ones in which anything may be wrong."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**30, 10**60),
    st.floats(),
    TEXT,
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
    found: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=keys)
    return found


@st.composite
def tunings(draw: st.DrawFn, slots: bool = True) -> dict[str, Any]:
    """A right tuning block."""
    tuning: dict[str, Any] = draw(some_of(
        ompThreads=st.integers(1, 64),
        intraOpThreads=st.integers(1, 64),
        interOpThreads=st.integers(1, 4),
        kmpBlocktime=st.sampled_from([0, 1, 200]),
        oneDnn=st.booleans(),
        bfloat16=st.booleans(),
        binding=st.sampled_from(["socket", "core", "none"]),
        cpu=st.sampled_from([1, "2", "16"]),
        memory=QUANTITIES,
        shm=QUANTITIES,
    ))  # fmt: skip
    if slots and draw(st.booleans()):
        tuning["slots"] = draw(st.integers(1, 8))
    return tuning


@st.composite
def groups(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A right node group: nodes with GPUs, or CPU nodes, or slices of a shared machine."""
    group: dict[str, Any] = {"name": name, "count": draw(st.integers(1, 128))}
    kind = draw(st.sampled_from(["cpu", "gpu", "gpu with cores", "shared", "static"]))
    if kind != "gpu":
        group["coresPerSocket"] = draw(st.integers(1, 128))
        group |= draw(some_of(
            sockets=st.integers(1, 8),
            threadsPerCore=st.sampled_from([1, 2, 4]),
        ))  # fmt: skip
    if kind in ("cpu", "static") and draw(st.booleans()):
        group["reserved"] = draw(st.sampled_from([{"cpu": 0}, {"cpu": "250m", "memory": "16Mi"}]))
    if kind.startswith("gpu"):
        group["gpus"] = draw(st.integers(1, 16))
        resources = ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb"]
        group |= draw(some_of(gpuResource=st.sampled_from(resources)))
    if kind == "shared":
        group["shared"] = True
    if kind == "static" or draw(st.booleans()):
        group["memory"] = draw(QUANTITIES)
    if kind == "static":
        group["cpuManager"] = "static"
    taint = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    more: dict[str, Any] = draw(some_of(
        nodeSelector=st.just({"node-type": "highmem", "example.com/zone": ""}),
        tolerations=st.just([taint]),
        affinity=st.just({"podAffinity": {}}),
        interface=st.sampled_from(["eth0", "ib0"]),
        rdma=st.just({"resource": "rdma/hca", "count": 2}),
        tuning=tunings(slots=not kind.startswith("gpu")),
    ))  # fmt: skip
    return group | more


SOURCES: st.SearchStrategy[dict[str, Any]] = st.sampled_from([
    {"hostPath": "/mnt/x"}, {"pvc": "claim"}, {"nfs": {"server": "nfs.example", "path": "/x"}},
    {"emptyDir": {}}, {"emptyDir": {"sizeLimit": "1Gi"}}, {"configMap": "settings"},
])  # fmt: skip


@st.composite
def volumes(draw: st.DrawFn, groups: list[str]) -> dict[str, Any]:
    """Right volumes of these groups."""
    found = {}
    for name in draw(st.lists(st.sampled_from(["data", "output", "x"]), unique=True)):
        some = st.lists(st.sampled_from(groups), unique=True)
        more = draw(some_of(subPath=st.just("a/b"), groups=some))
        if name != "output" and draw(st.booleans()):
            more["readOnly"] = True
        found[name] = {**draw(SOURCES), **more, "mountPath": f"/{name}"}
    return found


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
        st.sampled_from(["number", "slots", "env", "resources", "nonsense"]), ANYTHING, max_size=2
    ),
    master=st.dictionaries(st.sampled_from(["args", "backoffLimit"]), ANYTHING, max_size=2),
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A right spec."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    spec: dict[str, Any] = {
        "apiVersion": "hvdchart/v1",
        "name": draw(NAMES),
        "nodes": [draw(groups(name)) for name in names],
        "train": {"command": draw(st.lists(TEXT, min_size=1, max_size=4))},
    }
    spec["train"] |= draw(some_of(
        env=st.dictionaries(st.sampled_from(["A", "B_1", "_C"]), TEXT, max_size=3),
        retries=st.integers(0, 5),
        batchSize=st.integers(1, 512),
    ))  # fmt: skip
    image = {"repository": "registry.example:5000/a/b", "tag": "1.0", "pullSecrets": ["x"]}
    spec |= draw(some_of(
        image=st.just(image),
        volumes=volumes(names),
        launch=some_of(
            mode=st.sampled_from(["mpirun", "horovodrun", "elastic", "custom"]),
            hostsTimeoutSeconds=st.integers(1, 600),
        ),
        tuning=tunings(slots=False),
        horovod=some_of(
            autotune=st.booleans(),
            fusionThreshold=st.sampled_from([0, "64Mi", "1Gi"]),
            cycleTime=st.sampled_from([1, 3.5]),
        ),
        values=RIGHT_VALUES,
    ))  # fmt: skip
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
