"""What each key of a spec allows alone and the whole does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from hvdchart.quantity import MI
from hvdchart.spec.model import NodeGroup, Reserved, Spec, Volume
from hvdchart.spec.topology import cores, reserved_cores, slots

# A StatefulSet's name becomes a label with a hash of 11 characters behind it; labels end at 63.
# Source: kubernetes/kubernetes#64023.
STATEFULSET_NAME_LIMIT = 52
DEFAULT_MOUNTS = {"data": "/data", "output": "/output"}
VOLUME_SOURCES = {
    "hostPath": "host_path",
    "pvc": "pvc",
    "nfs": "nfs",
    "emptyDir": "empty_dir",
    "configMap": "config_map",
}
# Names and places that the chart's own pods use.
CHARTS_VOLUMES = ("files", "generated", "ssh", "tmp", "shm")
CHARTS_MOUNTS = ("/horovod", "/tmp", "/dev", "/dev/shm", "/etc", "/etc/passwd", "/proc", "/sys")  # noqa: S108

Path: TypeAlias = tuple[str | int, ...]
Finding: TypeAlias = tuple[Path, str, str]


def contradictions(spec: Spec) -> Iterator[Finding]:
    """Every contradiction: the path of the value to change, what is wrong, what was expected."""
    seen: dict[str, int] = {}
    for index, group in enumerate(spec.nodes):
        if group.name in seen:
            problem = f"nodes[{seen[group.name]}] has the name {group.name!r} too"
            yield ("nodes", index, "name"), problem, "another name for each group"
        seen[group.name] = index
        yield from _names(spec, index)
        yield from _topology(("nodes", index), group)
        yield from _cpu_manager(("nodes", index), spec, group)
        yield from _ranks(("nodes", index), spec, group)
        yield from _reserved(("nodes", index), group)
    yield from _volumes(spec)
    yield from _run(spec)


def mount_path(name: str, volume: Volume) -> str:
    """Where a volume is seen in the pods."""
    chosen = volume.mount_path or DEFAULT_MOUNTS.get(name, f"/{name}")
    return chosen.rstrip("/") or "/"


def _names(spec: Spec, index: int) -> Iterator[Finding]:
    group = spec.nodes[index].name
    if group == "master":
        yield ("nodes", index, "name"), "'master' is the master's own name", "another name"
    # A single group becomes the chart's `worker`.
    stateful_set = f"{spec.name}-{group if len(spec.nodes) > 1 else 'worker'}"
    if len(stateful_set) > STATEFULSET_NAME_LIMIT:
        problem = f"StatefulSet name {stateful_set!r} has {len(stateful_set)} characters"
        path: Path = ("nodes", index, "name") if len(spec.nodes) > 1 else ("name",)
        yield path, problem, f"a name that makes at most {STATEFULSET_NAME_LIMIT} of it"


def _topology(at: Path, group: NodeGroup) -> Iterator[Finding]:
    if group.cores_per_socket is None:
        if not group.gpus:
            expected = "coresPerSocket for a CPU node (lscpu shows it), or gpus"
            yield at, "a group needs coresPerSocket or gpus", expected
        if group.sockets or group.threads_per_core:
            given = "sockets" if group.sockets else "threadsPerCore"
            problem = f"{given} says nothing without coresPerSocket"
            yield (*at, given), problem, "coresPerSocket too"
    if group.shared and group.reserved != Reserved():
        expected = "cores and memory of the share alone"
        yield (*at, "reserved"), "a share of a machine reserves nothing", expected


def _cpu_manager(at: Path, spec: Spec, group: NodeGroup) -> Iterator[Finding]:
    if group.cpu_manager != "static":
        return
    here = (*at, "cpuManager")
    if group.shared:
        yield here, "static on a shared machine", "static or shared: true, not both"
    if group.cores_per_socket is None:
        yield here, "static without coresPerSocket", "coresPerSocket, to ask for whole cores"
    elif reserved_cores(group) >= cores(group):
        problem = f"static, and all {cores(group)} cores are kept for the node's daemons"
        yield here, problem, "more cores, or a smaller reserved.cpu"
    if group.memory is None and group.tuning.memory is None and spec.tuning.memory is None:
        expected = "memory: only Guaranteed pods get cores of their own, and those limit memory"
        yield here, "static without memory", expected


def _ranks(at: Path, spec: Spec, group: NodeGroup) -> Iterator[Finding]:
    for path, tuning in (((*at, "tuning"), group.tuning), (("tuning",), spec.tuning)):
        if group.gpus and tuning.slots not in (None, group.gpus):
            problem = f"{tuning.slots} slots on nodes with {group.gpus} GPUs"
            yield (*path, "slots"), problem, "one rank a GPU: leave slots out or change gpus"
        if group.cpu_manager == "static" and tuning.cpu is not None and tuning.cpu % 1000:
            yield (*path, "cpu"), "not whole CPUs with cpuManager static", "a whole number of CPUs"


def _reserved(at: Path, group: NodeGroup) -> Iterator[Finding]:
    if group.memory is not None and (group.reserved.memory or 0) >= group.memory:
        yield (*at, "reserved", "memory"), "reserves all of the node's memory", "less than memory"
    if group.cores_per_socket is not None:
        cpus = (group.sockets or 1) * group.cores_per_socket * (group.threads_per_core or 1)
        if (group.reserved.cpu or 0) >= cpus * 1000:
            problem = f"reserves all {cpus} of the node's CPUs"
            yield (*at, "reserved", "cpu"), problem, f"less than {cpus}"


def _volumes(spec: Spec) -> Iterator[Finding]:
    groups = {group.name for group in spec.nodes}
    mounts: dict[str, str] = {}
    for name, volume in spec.volumes.items():
        at: Path = ("volumes", name)
        yield from _volume(at, name, volume)
        for index, group in enumerate(volume.groups):
            if group not in groups:
                yield (*at, "groups", index), f"no group {group!r}", f"one of {sorted(groups)}"
        mount = mount_path(name, volume)
        if mount in mounts:
            problem = f"volume {mounts[mount]!r} is mounted at {mount} too"
            yield (*at, "mountPath"), problem, "another path for each volume"
        mounts[mount] = name


def _volume(at: Path, name: str, volume: Volume) -> Iterator[Finding]:
    given = [key for key, field in VOLUME_SOURCES.items() if getattr(volume, field) is not None]
    if len(given) != 1:
        problem = f"{' and '.join(given)} together" if given else "no source"
        yield at, problem, f"exactly one of {', '.join(VOLUME_SOURCES)}"
    if name in CHARTS_VOLUMES:
        yield at, f"{name!r} is a volume of the chart's own", "another name"
    if volume.mount_path is None and name not in DEFAULT_MOUNTS:
        expected = f"mountPath (only {' and '.join(DEFAULT_MOUNTS)} have one)"
        yield at, "key 'mountPath' is missing", expected
    mount = mount_path(name, volume)
    if mount == "/" or mount in CHARTS_MOUNTS or mount.startswith("/horovod/"):
        problem = f"{mount} is the system's or the chart's own place"
        yield (*at, "mountPath"), problem, "another path, such as /work"
    if name == "output" and volume.read_only:
        yield (*at, "readOnly"), "the output cannot be written", "readOnly: false"


def _run(spec: Spec) -> Iterator[Finding]:
    if spec.train.checkpoints is not None and "output" not in spec.volumes:
        problem = "checkpoints need an output volume"
        yield ("train", "checkpoints"), problem, "volumes.output, to hold them"
    output = spec.volumes.get("output")
    groups = {group.name for group in spec.nodes}
    on_all = output is not None and (not output.groups or groups <= set(output.groups))
    if spec.horovod.timeline and not on_all:
        expected = "volumes.output on all groups, to hold it"
        yield ("horovod", "timeline"), "the timeline needs an output volume", expected
    if (spec.horovod.fusion_threshold or 0) % MI:
        yield ("horovod", "fusionThreshold"), "not whole Mi", "a threshold such as 64Mi"
    yield from _elastic(spec)
    yield from _binding(spec)
    if spec.launch.mode == "custom" and spec.launch.options:
        problem = "launch.mode custom takes no options"
        yield ("launch", "options"), problem, "them in train.command, the whole command line"


def _binding(spec: Spec) -> Iterator[Finding]:
    """What mpirun binds ranks to is one for all groups, and needs to know their cores."""
    places: list[tuple[Path, str | None]] = [(("tuning", "binding"), spec.tuning.binding)]
    for index, group in enumerate(spec.nodes):
        places.append((("nodes", index, "tuning", "binding"), group.tuning.binding))
    said = [(path, binding) for path, binding in places if binding is not None]
    for path, binding in said:
        if spec.launch.mode in ("elastic", "custom"):
            problem = f"launch.mode {spec.launch.mode} takes no binding"
            yield path, problem, "none of it, or launch.mode mpirun or horovodrun"
        if binding != said[0][1]:
            yield path, f"{binding} here and {said[0][1]} elsewhere", "one binding for all groups"
        for group in spec.nodes:
            ranks = slots(group, spec)
            if binding != "none" and ranks > cores(group):
                known = f"{cores(group)} cores" if cores(group) else "no coresPerSocket"
                problem = f"{ranks} ranks to bind on group {group.name!r} with {known}"
                yield path, problem, "a core for each rank, or binding none"
            if binding == "socket" and ranks % (group.sockets or 1):
                problem = f"{ranks} ranks on {group.sockets} sockets of group {group.name!r}"
                yield path, problem, "as many ranks on each socket, or binding core"


def _elastic(spec: Spec) -> Iterator[Finding]:
    limits = spec.launch.elastic
    ranks = sum(group.count * slots(group, spec) for group in spec.nodes)
    for name, limit, is_wrong in (
        ("minRanks", limits.min_ranks, ranks < (limits.min_ranks or 0)),
        ("maxRanks", limits.max_ranks, ranks > (limits.max_ranks or ranks)),
    ):
        at: Path = ("launch", "elastic", name)
        if limit is not None and spec.launch.mode != "elastic":
            yield at, f"{name} without launch.mode elastic", "launch.mode: elastic"
        elif is_wrong:
            problem = f"the nodes make {ranks} ranks and {name} is {limit}"
            yield at, problem, f"limits around {ranks}"
