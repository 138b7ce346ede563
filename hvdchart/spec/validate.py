"""Checks a spec for keys that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from hvd_pods.shared.launcher_options import LAUNCH
from hvdchart.chart_facts import is_in_kueue
from hvdchart.chart_files import (
    device_plugin,
    is_charts_variable,
    is_charts_volume,
    is_ranks_variable,
    is_reserved_path,
    max_workers,
    read_data,
)
from hvdchart.quantity import cpu_text, pluralize
from hvdchart.spec.launchers import check_options, nested_launcher
from hvdchart.spec.model import (
    DEFAULT_MOUNTS,
    VOLUME_SOURCES,
    NodeGroup,
    Reserved,
    Spec,
    Volume,
    mount_path,
)
from hvdchart.spec.paths import KeyPath, format_path
from hvdchart.spec.topology import (
    PODS_MILLICPU,
    cores,
    kubelet_cpu,
    node_cpu,
    override,
    reserved_cores,
    slots,
    workers,
)

Contradiction: TypeAlias = tuple[KeyPath, str, str]
"""The path of the value to change, the problem, what was expected."""


def find_contradictions(spec: Spec) -> Iterator[Contradiction]:
    """Yield every contradiction in `spec`, in the order of its keys."""
    seen: dict[str, int] = {}
    for index, group in enumerate(spec.nodes):
        if group.name in seen:
            problem = f"nodes[{seen[group.name]}] has the same name {group.name!r}"
            yield ("nodes", index, "name"), problem, "a different name for each group"
        seen[group.name] = index
        yield from _names(spec, index)
        yield from _topology(("nodes", index), group)
        yield from _cpu_manager(("nodes", index), spec, group)
        yield from _ranks(("nodes", index), spec, group)
        yield from _check_reserved(("nodes", index), group)
        yield from _minimum(("nodes", index, "minimum"), spec, group)
    yield from _hosts(spec)
    yield from _devices(spec)
    yield from _volumes(spec)
    yield from _run(spec)


def _minimum(at: KeyPath, spec: Spec, group: NodeGroup) -> Iterator[Contradiction]:
    count = workers(group, spec)
    if group.minimum and group.minimum > count:
        yield at, f"{group.minimum} of {count} nodes", f"1 to {count}"


def _names(spec: Spec, index: int) -> Iterator[Contradiction]:
    group = spec.nodes[index].name
    if group == "master":
        yield ("nodes", index, "name"), "the chart's own pod is named 'master'", "another name"
    # A single group becomes the chart's `worker`.
    suffix = f"-{group if len(spec.nodes) > 1 else 'worker'}"
    stateful_set = f"{spec.name}{suffix}"
    longest = longest_name(spec)
    if len(stateful_set) > longest:
        problem = f"StatefulSet name {stateful_set!r} has {len(stateful_set)} characters"
        if len(spec.nodes) > 1:
            path: KeyPath = ("nodes", index, "name")
            yield path, problem, f"a name with which it has at most {longest}"
        else:
            yield ("name",), problem, f"a name of at most {longest - len(suffix)} characters"


def longest_name(spec: Spec) -> int:
    """Return the maximum length of the name of a StatefulSet of the run."""
    longest = read_data("resources.json")["statefulSetName"]
    return int(longest["inQueue" if is_in_kueue(spec.values) else "alone"])


def _topology(at: KeyPath, group: NodeGroup) -> Iterator[Contradiction]:
    if group.cores_per_socket is None:
        if not group.gpus:
            expected = "coresPerSocket for a CPU node (lscpu shows it), or gpus"
            yield at, "a group needs coresPerSocket or gpus", expected
            return
        for name, value in (
            ("sockets", group.sockets),
            ("threadsPerCore", group.threads_per_core),
            ("numaPerSocket", group.numa_per_socket),
        ):
            if value:
                problem = f"{name} has no effect without coresPerSocket"
                yield (*at, name), problem, "coresPerSocket as well"
    elif (group.numa_per_socket or 1) > group.cores_per_socket:
        problem = (
            f"{group.numa_per_socket} NUMA nodes in a socket of {group.cores_per_socket} cores"
        )
        yield (*at, "numaPerSocket"), problem, "at least a core for each NUMA node"
    if group.shared and group.reserved != Reserved():
        problem = "with shared: true, cores and memory are the worker's own and nothing is reserved"
        yield (*at, "reserved"), problem, "no reserved, or shared: false"


def _cpu_manager(at: KeyPath, spec: Spec, group: NodeGroup) -> Iterator[Contradiction]:
    if group.cpu_manager != "static":
        return
    here = (*at, "cpuManager")
    if group.shared:
        yield here, "static together with shared: true", "one of the two"
    if group.cores_per_socket is None:
        yield here, "static without coresPerSocket", "coresPerSocket, to request whole cores"
    elif reserved_cores(group) >= cores(group):
        problem = (
            f"static, and none of {pluralize(cores(group), 'core')} is left: the kubelet reserves "
            f"{cpu_text(kubelet_cpu(group))} CPUs, and the master and DaemonSets need "
            f"{cpu_text(PODS_MILLICPU)}"
        )
        yield here, problem, "more cores, or a smaller reserved.cpu"
    if group.memory is None and group.tuning.memory is None and spec.tuning.memory is None:
        expected = "memory: only Guaranteed pods, which limit it, get exclusive cores"
        yield here, "static without memory", expected


def _ranks(at: KeyPath, spec: Spec, group: NodeGroup) -> Iterator[Contradiction]:
    from_values = override(spec, "slots")
    yield from _slots_of_gpus(("values", "worker", "slots"), group, from_values)
    for path, tuning in (((*at, "tuning"), group.tuning), (("tuning",), spec.tuning)):
        yield from _slots_of_gpus((*path, "slots"), group, tuning.slots)
        if group.cpu_manager == "static" and tuning.cpu is not None and tuning.cpu % 1000:
            problem = f"{cpu_text(tuning.cpu)} CPUs with cpuManager static"
            yield (*path, "cpu"), problem, "whole CPUs"


def _slots_of_gpus(at: KeyPath, group: NodeGroup, slots: int | None) -> Iterator[Contradiction]:
    if group.gpus and slots not in (None, group.gpus):
        problem = f"{slots} slots on nodes with {group.gpus} GPUs"
        yield at, problem, "one rank per GPU: omit slots or change gpus"


def _hosts(spec: Spec) -> Iterator[Contradiction]:
    spares = override(spec, "spares")
    number = sum(workers(group, spec) for group in spec.nodes)
    number += sum(group.spares if spares is None else spares for group in spec.nodes)
    if number > max_workers():
        problem = f"{number} workers with their spares"
        yield ("nodes",), problem, f"at most {max_workers()} in all groups"


def _devices(spec: Spec) -> Iterator[Contradiction]:
    plugin = device_plugin(group.gpu_resource for group in spec.nodes if group.gpus)
    value = spec.train.env.get(plugin.variable) if plugin else None
    if plugin and value is not None and value not in plugin.values:
        problem = "it would replace the GPUs that the device plugin gives to a worker"
        expected = f"no such variable, or the value {' or '.join(plugin.values)}"
        yield ("train", "env", plugin.variable), problem, expected


def _check_reserved(at: KeyPath, group: NodeGroup) -> Iterator[Contradiction]:
    if group.memory is not None and (group.reserved.memory or 0) >= group.memory:
        yield (*at, "reserved", "memory"), "reserves all of the node's memory", "less than memory"
    if group.cores_per_socket is not None:
        cpus = node_cpu(group) // 1000
        if (group.reserved.cpu or 0) >= node_cpu(group):
            problem = f"reserves all {cpus} of the node's CPUs"
            yield (*at, "reserved", "cpu"), problem, f"less than {cpus}"


def _volumes(spec: Spec) -> Iterator[Contradiction]:
    groups = {group.name for group in spec.nodes}
    mounts: dict[str, str] = {}
    for name, volume in spec.volumes.items():
        at: KeyPath = ("volumes", name)
        yield from _volume(at, name, volume)
        for index, group in enumerate(volume.groups):
            if group not in groups:
                yield (*at, "groups", index), f"no group {group!r}", f"one of {sorted(groups)}"
        mount = mount_path(name, volume)
        if mount in mounts:
            problem = f"volume {mounts[mount]!r} is mounted at {mount} as well"
            yield (*at, "mountPath"), problem, "a different path for each volume"
        mounts[mount] = name


def _volume(at: KeyPath, name: str, volume: Volume) -> Iterator[Contradiction]:
    sources = volume.sources
    if len(sources) != 1:
        problem = f"{' and '.join(sources)} together" if sources else "no source"
        yield at, problem, f"exactly one of {', '.join(VOLUME_SOURCES)}"
    if is_charts_volume(name):
        yield at, f"the chart has a volume named {name!r} itself", "another name"
    if volume.mount_path is None and name not in DEFAULT_MOUNTS:
        expected = f"mountPath (only {' and '.join(DEFAULT_MOUNTS)} have a default)"
        yield at, "key 'mountPath' is missing", expected
    mount = mount_path(name, volume)
    if is_reserved_path(mount):
        problem = f"{mount} is used by the system or by the chart"
        yield (*at, "mountPath"), problem, "another path, such as /work"
    if name == "output" and volume.read_only:
        yield (*at, "readOnly"), "the output volume is mounted read-only", "readOnly: false"


def _run(spec: Spec) -> Iterator[Contradiction]:
    yield from _variables(spec)
    yield from _output(spec)
    yield from _binding(spec)
    yield from _launch(spec)


def _variables(spec: Spec) -> Iterator[Contradiction]:
    for name in filter(is_charts_variable, spec.train.env):
        yield ("train", "env", name), "the chart sets that variable", "another name"
    # A command of mode custom may start ranks with its own variables.
    names = [] if spec.launch.mode == "custom" else [*filter(is_ranks_variable, spec.train.env)]
    for name in names:
        problem = "the launcher sets that variable, differently for each rank"
        yield ("train", "env", name), problem, "another name"


def _output(spec: Spec) -> Iterator[Contradiction]:
    """Find what is written, and has no output volume."""
    if spec.train.checkpoints is not None and "output" not in spec.volumes:
        problem = "checkpoints need an output volume"
        yield ("train", "checkpoints"), problem, "`volumes.output`"
    output = spec.volumes.get("output")
    groups = {group.name for group in spec.nodes}
    # All groups mount a volume without groups.
    on_all = output is not None and (not output.groups or groups <= set(output.groups))
    if spec.horovod.timeline and not on_all:
        expected = "`volumes.output`, mounted by all groups"
        yield ("horovod", "timeline"), "the timeline needs an output volume", expected


def _launch(spec: Spec) -> Iterator[Contradiction]:
    """Find what the mode of the launch does not allow."""
    is_custom = spec.launch.mode == "custom"
    has_launch = LAUNCH in spec.train.command
    if has_launch and not is_custom:
        expected = "`launch.mode: custom`, or no such argument"
        yield ("train", "command"), f"{LAUNCH} without `launch.mode: custom`", expected
    if not is_custom:
        yield from _find_nested_launcher(spec.train.command)
    if spec.launch.mode != "direct":
        yield from check_options(spec)
    elif spec.launch.options:
        expected = "no options, or another `launch.mode`"
        yield ("launch", "options"), "`launch.mode: direct` takes no options here", expected
    if spec.launch.allow_idle_workers and not is_custom:
        problem = "a launcher that the chart starts uses the workers"
        yield ("launch", "allowIdleWorkers"), problem, "`launch.mode: custom`, or no such key"
    if is_custom and spec.launch.options and not has_launch:
        problem = "`launch.mode: custom` takes no options"
        expected = "options in `train.command`, the complete command line"
        yield ("launch", "options"), problem, expected


def _find_nested_launcher(command: Sequence[str]) -> Iterator[Contradiction]:
    """Find a launcher in the command that the run starts in each rank."""
    nested = nested_launcher(command)
    if nested:
        launcher, started = nested
        shown = f"[{', '.join(started)}]" if started else "the command of one rank alone"
        problem = f"{launcher} starts ranks itself, and the run starts this command in each rank"
        expected = f"{shown}; `nodes` and `tuning.slots` give the numbers of workers and ranks"
        yield ("train", "command"), problem, expected


def _binding(spec: Spec) -> Iterator[Contradiction]:
    """Check the binding: mpirun has one for all groups, and needs a core for each rank."""
    places: list[tuple[KeyPath, str | None]] = [(("tuning", "binding"), spec.tuning.binding)]
    for index, group in enumerate(spec.nodes):
        places.append((("nodes", index, "tuning", "binding"), group.tuning.binding))
    bindings = [(path, binding) for path, binding in places if binding is not None]
    mode = spec.launch.mode
    has_no_place = mode == "custom" and LAUNCH not in spec.train.command
    for path, binding in bindings:
        if has_no_place:
            problem = f"`launch.mode: {mode}` takes no binding"
            expected = "no `tuning.binding`, or `launch.mode: mpirun` or `launch.mode: direct`"
            yield path, problem, expected
        first_path, first = bindings[0]
        if binding != first:
            problem = f"binding {binding} here and {first} in `{format_path(first_path)}`"
            yield path, problem, "one binding for all groups"
        for group in spec.nodes:
            ranks = slots(group, spec)
            if binding != "none" and ranks > cores(group):
                cores_text = f"{cores(group)} cores" if cores(group) else "no coresPerSocket"
                problem = f"{ranks} ranks to bind on group {group.name!r} with {cores_text}"
                yield path, problem, "a core for each rank, or binding: none"
            if binding == "socket" and ranks % (group.sockets or 1):
                problem = f"{ranks} ranks on {group.sockets} sockets of group {group.name!r}"
                yield path, problem, "the same number of ranks on each socket, or binding: core"
