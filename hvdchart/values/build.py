"""Makes the chart's values from a plan, with the reason for each planned number. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeAlias

from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.plan.rules import Reason, override_reason
from hvdchart.quantity import MI, cpu_text, memory_text
from hvdchart.spec.launchers import launcher_memory
from hvdchart.spec.model import NodeGroup, Volume, mount_path
from hvdchart.spec.paths import child_at, value_at
from hvdchart.spec.topology import MASTER_CPU, MASTER_MEMORY, without_spot
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import split_image
from hvdchart.values.merge import merge_values

PATH_VARIABLES = {"data": "DATA_PATH", "output": "OUTPUT_PATH"}
ValuePath: TypeAlias = tuple[str | int, ...]
"""The path of a value; in a list of named items, such as `env`, the last step is the name."""


def make_values(plan: Plan) -> dict[str, Plain]:
    """The chart's values for a plan, with the spec's `values` merged last; not checked yet."""
    return merge_values(planned_values(plan), plan.spec.values)


def planned_values(plan: Plan) -> dict[str, Plain]:
    """As `make_values`, without the spec's `values`."""
    spec = plan.spec
    values: dict[str, Plain] = {}
    if spec.image:
        image = spec.image
        values["image"] = _omit_empty(
            repository=image.repository,
            tag=image.tag,
            digest=image.digest,
            pullPolicy=image.pull_policy,
        )
        values["imagePullSecrets"] = [{"name": name} for name in spec.image.pull_secrets]
        values["ssh"] = {"image": split_image(image.ssh)} if image.ssh else {}
    common = _environment({**_paths(plan, None), **spec.train.env})
    if len(plan.groups) == 1:
        values["worker"] = _worker(plan, plan.groups[0], common)
    else:
        values["worker"] = {"env": common} if common else {}
        groups = [{"name": g.group.name, **_worker(plan, g, [])} for g in plan.groups]
        values["workerGroups"] = groups
    values["master"] = _master(plan)
    values["launch"] = _launch(plan)
    threshold = spec.horovod.fusion_threshold
    values["horovod"] = _omit_empty(
        timeline=spec.horovod.timeline or None,
        autotune=spec.horovod.autotune or None,
        fusionThresholdMiB=None if threshold is None else threshold // MI,
        cycleTimeMs=spec.horovod.cycle_time,
    )
    values["network"] = _omit_empty(
        interface=plan.launching.interface, transport=plan.launching.transport or None
    )
    everywhere = {n: v for n, v in spec.volumes.items() if _is_everywhere(plan, v)}
    values["volumes"] = [_volume(name, volume) for name, volume in everywhere.items()]
    values["volumeMounts"] = [_mount(name, volume) for name, volume in everywhere.items()]
    values["shm"] = {"sizeLimit": memory_text(plan.shm)}
    return _omit_empty(**values)


def explain(plan: Plan) -> dict[ValuePath, Reason]:
    """The reason for each number by the path of its value, also of the spec's `values`."""
    planned = planned_values(plan)
    merged = make_values(plan)
    reasons = {}
    for path, reason in _planned_reasons(plan).items():
        before = value_in(planned, path)
        after = value_in(merged, path)
        replaced = override_reason(f"values.{'.'.join(map(str, path))}", before)
        reasons[path] = reason if before == after else replaced
    return reasons


def value_in(values: Plain, path: ValuePath) -> Plain:
    """The value at a path; in a list of named items, such as `env`, the last step is the name."""
    *above, name = path
    parent = value_at(values, above)
    if isinstance(parent, list):
        named = (item for item in parent if isinstance(item, dict) and item.get("name") == name)
        return next((item.get("value") for item in named), None)
    return child_at(parent, name)


def _planned_reasons(plan: Plan) -> dict[ValuePath, Reason]:
    reasons: dict[ValuePath, Reason] = {("shm", "sizeLimit"): plan.shm_reason}
    if plan.spec.launch.mode != "custom" or plan.launching.binding.to != "none":
        reasons["launch", "binding", "to"] = plan.launching.reason
    reasons |= {("launch", key): reason for key, reason in plan.framework.reasons.items()}
    for index, group in enumerate(plan.groups):
        root: ValuePath = ("worker",) if len(plan.groups) == 1 else ("workerGroups", index)
        for key, reason in group.reasons.items():
            _, limit, resource = key.partition("resources.limits.")
            steps = ["resources", "limits", resource] if limit else key.split(".")
            variable = key.removeprefix("env.")
            is_users = key != variable and variable in plan.spec.train.env
            reasons[(*(("worker",) if is_users else root), *steps)] = reason
    return reasons


def _worker(plan: Plan, group: GroupPlan, common: list[Plain]) -> dict[str, Plain]:
    nodes = group.group
    own_paths = _paths(plan, nodes.name)
    interfaces = plan.launching.group_env.get(nodes.name, {})
    worker: dict[str, Plain] = {"number": nodes.count, "spares": nodes.spares or None}
    worker["slots"] = group.slots
    own_env = {**group.env, **interfaces, **own_paths}
    # Once: a variable of train.env is among the common ones, and the API refuses two of one name.
    given = plan.spec.train.env
    own_env = {name: value for name, value in own_env.items() if name not in given}
    worker["env"] = [*_environment(own_env), *common]
    worker["resources"] = _omit_empty(requests=dict(group.requests), limits=dict(group.limits))
    worker.update(_scheduling(nodes))
    if not nodes.shared and "podAntiAffinity" not in nodes.affinity:
        # Ranks of two workers on one node would be bound to the same cores.
        worker["spread"] = "Required"
    own = {n: v for n, v in plan.spec.volumes.items() if _is_only_in(plan, v, nodes.name)}
    worker["volumes"] = [_volume(name, volume) for name, volume in own.items()]
    worker["volumeMounts"] = [_mount(name, volume) for name, volume in own.items()]
    return _omit_empty(**worker)


def _master(plan: Plan) -> dict[str, Plain]:
    """The master runs no rank; it is scheduled like the first group, to reach the same volumes.

    It does not follow workers to nodes that the provider takes away, which would end the attempt.
    """
    train = plan.spec.train
    most = max(plan.ranks, plan.spec.launch.elastic.max_ranks or plan.ranks)
    clients = launcher_memory(plan.framework.mode, most)
    memory = max(MASTER_MEMORY, clients)
    requests = {"cpu": cpu_text(MASTER_CPU), "memory": memory_text(memory)}
    master: dict[str, Plain] = {"args": list(train.command), "resources": {"requests": requests}}
    nodes = [(group.group, without_spot(group.group)) for group in plan.groups]
    steady = [group for group, rest in nodes if group == rest]
    master.update(_scheduling(steady[0] if steady else nodes[0][1]))
    master["backoffLimit"] = train.retries
    master["activeDeadlineSeconds"] = train.deadline_seconds
    return _omit_empty(**master)


def _launch(plan: Plan) -> dict[str, Plain]:
    launch = plan.spec.launch
    binding = plan.launching.binding
    limits = plan.spec.launch.elastic
    mode = None if plan.framework.mode == "mpirun" else plan.framework.mode
    return _omit_empty(
        mode=mode,
        framework=plan.framework.name,
        binding=_omit_empty(
            to=None if mode == "custom" and binding.to == "none" else binding.to,
            coresPerRank=binding.cores_per_rank,
            ranksPerSocket=binding.ranks_per_socket,
        ),
        options=list(launch.options),
        elastic=_omit_empty(minRanks=limits.min_ranks, maxRanks=limits.max_ranks),
        preload=list(plan.framework.preload),
        hostsTimeoutSeconds=launch.hosts_timeout_seconds,
    )


def _scheduling(nodes: NodeGroup) -> dict[str, Plain]:
    return _omit_empty(
        nodeSelector=dict(nodes.node_selector),
        affinity=copy.deepcopy(dict(nodes.affinity)),
        tolerations=[
            _omit_empty(
                key=toleration.taint,
                operator=toleration.operator,
                value=toleration.value,
                effect=toleration.effect,
                tolerationSeconds=toleration.toleration_seconds,
            )
            for toleration in nodes.tolerations
        ],
    )


def _is_everywhere(plan: Plan, volume: Volume) -> bool:
    return not volume.groups or {g.name for g in plan.spec.nodes} <= set(volume.groups)


def _is_only_in(plan: Plan, volume: Volume, group: str) -> bool:
    return group in volume.groups and not _is_everywhere(plan, volume)


def _paths(plan: Plan, group: str | None) -> dict[str, str]:
    """Variables with paths of the volumes that only `group` and others mount; None: that all do."""
    variables = {}
    for name, variable in PATH_VARIABLES.items():
        volume = plan.spec.volumes.get(name)
        if volume is None:
            continue
        here = _is_only_in(plan, volume, group) if group else _is_everywhere(plan, volume)
        if here:
            variables[variable] = mount_path(name, volume)
            checkpoints = plan.spec.train.checkpoints
            if name == "output" and checkpoints is not None:
                variables["CHECKPOINT_PATH"] = f"{variables[variable]}/{checkpoints}"
    return variables


def _environment(env: Mapping[str, Any]) -> list[Plain]:
    return [
        {"name": name, "value": value}
        if isinstance(value, str)
        else {"name": name, "valueFrom": dict(value)}
        for name, value in env.items()
    ]


def _volume(name: str, volume: Volume) -> dict[str, Plain]:
    if volume.host_path is not None:
        # Without the data directory the pod fails and names it, instead of training on nothing.
        kind = "Directory" if volume.read_only else "DirectoryOrCreate"
        return {"name": name, "hostPath": {"path": volume.host_path, "type": kind}}
    if volume.pvc is not None:
        read_only = {"readOnly": True} if volume.read_only else {}
        return {"name": name, "persistentVolumeClaim": {"claimName": volume.pvc, **read_only}}
    if volume.nfs is not None:
        nfs: dict[str, Plain] = {"server": volume.nfs.server, "path": volume.nfs.path}
        return {"name": name, "nfs": {**nfs, **({"readOnly": True} if volume.read_only else {})}}
    if volume.config_map is not None:
        return {"name": name, "configMap": {"name": volume.config_map}}
    return {"name": name, "emptyDir": copy.deepcopy(dict(volume.empty_dir or {}))}


def _mount(name: str, volume: Volume) -> dict[str, Plain]:
    where = mount_path(name, volume)
    read_only = volume.read_only or None
    return _omit_empty(name=name, mountPath=where, readOnly=read_only, subPath=volume.sub_path)


def _omit_empty(**pairs: Plain) -> dict[str, Plain]:
    return {key: value for key, value in pairs.items() if value not in (None, [], {}, ())}
