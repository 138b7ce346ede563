"""Warn of parts of a plan that are allowed, but probably not intended. Pure."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from hvdchart.plan import rules
from hvdchart.plan.binding import LaunchPlan
from hvdchart.plan.framework import Framework
from hvdchart.plan.model import GroupPlan
from hvdchart.quantity import cpu_text, memory_text, pluralize
from hvdchart.spec import topology
from hvdchart.spec.model import Spec
from hvdchart.text import join_names


def find_warnings(
    spec: Spec, groups: Sequence[GroupPlan], launching: LaunchPlan, framework: Framework
) -> Iterator[str]:
    """Yield the warnings of a plan, one line each: the problem and the remedy."""
    yield from _warn_of_broken_files(framework)
    yield from _warn_of_lone_ranks(framework, sum(group.ranks for group in groups))
    yield from _warn_of_rendezvous(framework, groups)
    yield from _warn_of_lost_files(framework)
    # The chart has one size for all groups.
    shm = max(group.shm for group in groups)
    for group in groups:
        for line in _warn_of_group(group, spec.train.env):
            yield f"group {group.group.name}: {line}"
        yield from _warn_of_shared_memory(group, shm)
    yield from _warn_of_binding(spec, groups, launching)
    yield from _warn_of_locked_memory(groups)
    yield from _warn_of_spot_nodes(groups)
    yield from _warn_of_volumes(
        spec, sum(group.group.count + group.group.spares for group in groups)
    )
    yield from _warn_of_overrides(spec)


def _warn_of_broken_files(framework: Framework) -> Iterator[str]:
    """Warn of each file of the program that is no Python."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for problem in framework.broken.values():
        yield f"{problem}; ranks end there, unless the image's Python is newer than {version}"


def _warn_of_lone_ranks(framework: Framework, ranks: int) -> Iterator[str]:
    """Warn of several ranks that train separate copies of the same model."""
    if framework.alone and ranks > 1:
        yield f"{framework.alone}: each of {ranks} ranks trains alone; {framework.remedy}"


def _warn_of_lost_files(framework: Framework) -> Iterator[str]:
    """Warn of files that are deleted with their pods."""
    if framework.saves_in_pod:
        yield (
            f"{framework.saves_in_pod} in a folder of the pod, which ends with it: save below the "
            "folder in OUTPUT_PATH, which is the volume output"
        )


def _warn_of_rendezvous(framework: Framework, groups: Sequence[GroupPlan]) -> Iterator[str]:
    """Warn of ranks that cannot connect to each other, according to the code that connects them."""
    workers = sum(group.group.count for group in groups)
    if framework.meets_locally and workers > 1:
        yield (
            f"{framework.meets_locally}, so that each of {workers} workers trains alone, or waits "
            "for the others: leave the address, and the start of ranks, to hvdchart"
        )
    if framework.nccl and not all(group.group.gpus for group in groups):
        yield (
            f"{framework.nccl}, which needs a GPU for each rank, and workers have none: give "
            "`nodes[].gpus`, or choose gloo"
        )


def _warn_of_binding(
    spec: Spec, groups: Sequence[GroupPlan], launching: LaunchPlan
) -> Iterator[str]:
    """Warn of ranks that are not bound to cores or to wrong ones, and of GPU beside CPU ranks."""
    gpus = {bool(group.group.gpus) for group in groups}
    # A custom launch ignores the plan's binding; the launcher's options may set one.
    binds_itself = spec.launch.mode == "custom" or bool(spec.launch.options)
    unbound = launching.binding.to == "none" and not binds_itself
    if len(gpus) > 1:
        yield (
            "CPU and GPU ranks in one job: Horovod refuses to reduce a tensor that is on a GPU in "
            "one rank and on a CPU in another; reduce on CPUs (device_dense='/cpu:0')"
        )
        if unbound:
            names = join_names(group.group.name for group in groups if not group.group.gpus)
            yield (
                f"ranks of {names} are not bound to cores: one binding holds for the whole job, "
                "and GPU ranks have none; run CPU and GPU nodes as two jobs, or give "
                "`tuning.binding` if all groups have coresPerSocket"
            )
    # If there are more ranks than cores, the group has its own warning.
    other = any(g.group.shared or 0 < topology.cores(g.group) < g.slots for g in groups)
    if unbound and gpus == {False} and not other:
        yield "ranks are not bound to cores: give all groups the same number of ranks per socket"
    if launching.binding.to == "socket":
        yield (
            "ranks are bound by socket: check with lscpu that nodes have the sockets of the spec; "
            "a virtual machine may show each CPU as a socket, and a rank would have one core"
        )


def _warn_of_locked_memory(groups: Sequence[GroupPlan]) -> Iterator[str]:
    """Warn of the limit of locked memory, which RDMA needs."""
    if any(group.group.rdma for group in groups):
        yield (
            "rdma locks memory: allow that in the nodes' container runtime (LimitMEMLOCK), or run "
            "as root with `values.worker.capabilities: [IPC_LOCK]`"
        )


def _warn_of_spot_nodes(groups: Sequence[GroupPlan]) -> Iterator[str]:
    """Warn of a master that no node of the spec may run."""
    if all(topology.drop_spot(group.group) != group.group for group in groups):
        yield (
            "all groups are on spot nodes: the master runs on other nodes, because it does not "
            "tolerate spot nodes; to run it there, too, set `values.master.tolerations`"
        )


def _warn_of_shared_memory(plan: GroupPlan, shm: int) -> Iterator[str]:
    """Warn of a /dev/shm that takes all memory of a worker."""
    if plan.memory is not None and shm >= plan.memory:
        yield (
            f"group {plan.group.name}: /dev/shm may take {memory_text(shm)}, and its content "
            f"counts towards {memory_text(plan.memory)} of memory: a worker is killed before it is "
            "full; lower `tuning.shm` or `nodes[].tuning.shm`"
        )


def _warn_of_overrides(spec: Spec) -> Iterator[str]:
    """Warn of values that change the workers without the plan."""
    if spec.values.get("workerGroups"):
        yield (
            "`values.workerGroups` replaces the groups of nodes: this plan's ranks, threads and "
            "bindings do not describe them"
        )
    if isinstance(spec.worker_value("env"), list):
        yield (
            "`values.worker.env` replaces the planned environment, with its numbers of threads "
            "and paths; add variables in `train.env`"
        )
    for name in ("number", "slots"):
        if len(spec.nodes) > 1 and spec.worker_value(name):
            yield (
                f"`values.worker.{name}` has no effect: each group has its own number and slots; "
                "use `nodes[].count` or `nodes[].tuning.slots`"
            )


def _warn_of_group(plan: GroupPlan, env: Collection[str]) -> Iterator[str]:
    """Yield the warnings of one group; `env` are the names in train.env."""
    yield from _warn_of_sockets(plan)
    yield from _warn_of_cores(plan)
    yield from _warn_of_gpus(plan, env)
    yield from _warn_of_requests(plan)
    yield from _warn_of_reserved_cpus(plan)


def _warn_of_reserved_cpus(plan: GroupPlan) -> Iterator[str]:
    """Warn of CPUs that the kubelet reserves, where a plan depends on them."""
    group = plan.group
    if group.cpu_manager == "static" and group.reserved.cpu is None:
        reserved = pluralize(topology.kubelet_cpu(group) // 1000, "CPU")
        yield (
            f"cpuManager static: the plan assumes that the kubelet reserves {reserved}; set "
            "`nodes[].reserved.cpu` to the number of CPUs in its reservedSystemCPUs, or else to "
            "the sum of its kubeReserved and systemReserved"
        )


def _warn_of_sockets(plan: GroupPlan) -> Iterator[str]:
    """Warn of ranks on CPUs that span two sockets."""
    group = plan.group
    sockets = group.sockets or 1
    if group.gpus:
        return
    if plan.slots % sockets:
        if rules.has_rank_on_two_sockets(group, plan.slots):
            yield (
                f"{plan.slots} ranks on {sockets} sockets: a rank would span two sockets; "
                "make slots a multiple of sockets"
            )
    elif (
        sockets > 1
        and topology.reserved_cores(group)
        # Each socket has the same number of ranks, but the first has too few cores.
        and not rules.ranks_of_a_socket(group, plan.slots)
    ):
        yield (
            "reserved cores leave the first socket no core for each of its ranks: ranks may span "
            "two sockets; lower `nodes[].reserved.cpu`"
        )


def _warn_of_cores(plan: GroupPlan) -> Iterator[str]:
    """Warn of more ranks or threads than cores."""
    group = plan.group
    cores = topology.cores(group)
    if cores and plan.slots > cores:
        remedy = "check `nodes[].coresPerSocket`" if group.gpus else "lower `nodes[].tuning.slots`"
        yield (
            f"{plan.slots} ranks on {pluralize(cores, 'core')}: ranks that share a core wait for "
            f"each other; {remedy}"
        )
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        number = plan.env.get(name, "")
        threads = int(number) * plan.slots if number.isdecimal() and int(number) > 1 else 0
        if cores and threads > cores:
            yield f"{name} starts {threads} threads on {cores} cores; lower it"


def _warn_of_requests(plan: GroupPlan) -> Iterator[str]:
    """Warn of requests that no node has, or that are too small for the ranks."""
    group = plan.group
    node = topology.node_cpu(group)
    if node and plan.cpu is not None and plan.cpu > node:
        yield (
            f"requests {cpu_text(plan.cpu)} CPUs of a node with {cpu_text(node)}: never "
            "scheduled; lower `nodes[].tuning.cpu`"
        )
    if group.memory is not None and plan.memory is not None and plan.memory > group.memory:
        have = memory_text(group.memory)
        yield (
            f"requests {memory_text(plan.memory)} of a node with {have}: never scheduled; "
            "lower `nodes[].tuning.memory`"
        )
    needed = topology.import_memory(plan.slots)
    if plan.memory is not None and plan.memory < needed:
        yield (
            f"{memory_text(plan.memory)} of memory for {pluralize(plan.slots, 'rank')}: they and "
            "the process that has imported their framework take up to "
            f"{memory_text(needed)} before they train; raise `nodes[].memory` or lower "
            "`nodes[].tuning.slots`"
        )


def _warn_of_gpus(plan: GroupPlan, env: Collection[str]) -> Iterator[str]:
    group = plan.group
    duplicates = topology.warn_of_duplicates(group.gpu_resource, group.node_selector)
    if duplicates and group.gpus > 1 and topology.NCCL_DUPLICATES not in env:
        yield duplicates
    sizes = {"`nodes[].coresPerSocket`": plan.cpu, "`nodes[].memory`": plan.memory}
    missing = [name for name, size in sizes.items() if size is None]
    if group.gpus and missing:
        verb, request = ("are", "neither") if len(missing) == 2 else ("is", "none")
        yield (
            f"{' and '.join(missing)} {verb} not given: workers request {request}, so other pods "
            "may take what their ranks need, and the kubelet evicts them first"
        )


def _warn_of_volumes(spec: Spec, workers: int) -> Iterator[str]:
    volumes = spec.volumes
    host_paths = [name for name, volume in volumes.items() if volume.host_path]
    if host_paths:
        yield (
            f"volumes {', '.join(host_paths)} are hostPath: Pod Security levels baseline and "
            "restricted forbid them, and user 1000 needs access to the directories"
        )
    claims = [name for name, volume in volumes.items() if volume.pvc and not volume.read_only]
    if claims and workers > 1:
        others = [name for name in claims if name != "output"]
        instead = f"; {join_names(others)} may have `readOnly: true` instead" if others else ""
        yield (
            f"volumes {', '.join(claims)} are claims that several pods write to: they must be "
            f"ReadWriteMany{instead}"
        )
    output = volumes.get("output")
    if output and output.empty_dir is not None:
        yield (
            "output is an emptyDir: results and checkpoints are deleted with their pod; "
            "`volumes.output.pvc` keeps them"
        )
        tensorboard = spec.values.get("tensorboard")
        if isinstance(tensorboard, Mapping) and tensorboard.get("enabled") is True:
            yield (
                "the chart refuses TensorBoard on an emptyDir, which each pod has for itself; "
                "`volumes.output.pvc` shows it what the ranks write"
            )
    if output and output.host_path and workers > 1:
        yield (
            "output is a hostPath: checkpoints are on the node of rank 0 only; use a shared volume "
            "(pvc, nfs) to resume on other nodes"
        )
    for name, volume in volumes.items():
        missing = [g.name for g in spec.nodes if volume.groups and g.name not in volume.groups]
        if missing:
            yield f"volume {name} is missing on group {', '.join(missing)}"
