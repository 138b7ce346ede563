"""Make the chart's values from a plan, with the reason for each planned number. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeAlias

from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.plan.rules import Reason, override_reason
from hvdchart.quantity import cpu_text, memory_text
from hvdchart.spec.launchers import launcher_memory
from hvdchart.spec.model import NodeGroup, Volume, mount_path
from hvdchart.spec.paths import child_at, value_at
from hvdchart.spec.topology import MASTER_MEMORY_BYTES, MASTER_MILLICPU, drop_spot
from hvdchart.spec.yaml_tree import Plain
from hvdchart.values.merge import merge_values

PATH_VARIABLES = {"data": "DATA_PATH", "output": "OUTPUT_PATH"}
ValuePath: TypeAlias = tuple[str | int, ...]
"""The path of a value; in a list of named items, such as `env`, the last step is the name."""


def make_values(plan: Plan) -> dict[str, Plain]:
    """Return the chart's unchecked values for a plan; the spec's `values` are merged last."""
    return merge_values(planned_values(plan), plan.spec.values)


def planned_values(plan: Plan) -> dict[str, Plain]:
    """Return values as `make_values` does, without the spec's `values`."""
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
    common = _environment({**_paths(plan, None), **spec.train.env})
    if len(plan.groups) == 1:
        values["worker"] = _worker(plan, plan.groups[0], common)
    else:
        values["worker"] = {"env": common} if common else {}
        groups = [{"name": g.group.name, **_worker(plan, g, [])} for g in plan.groups]
        values["workerGroups"] = groups
    values["master"] = _master(plan)
    values["launch"] = _launch(plan)
    values["horovod"] = _omit_empty(
        timeline=spec.horovod.timeline or None,
        autotune=spec.horovod.autotune or None,
        fusionThresholdMiB=spec.horovod.fusion_threshold_mib,
        cycleTimeMs=spec.horovod.cycle_time_ms,
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
    """Return the reason for each planned number by the path of its value.

    If the spec's `values` replace a number, the reason says so.
    """
    planned = planned_values(plan)
    merged = make_values(plan)
    reasons = {}
    for path, reason in _planned_reasons(plan).items():
        before = value_in(planned, path)
        if before == value_in(merged, path):
            reasons[path] = reason
        else:
            key = ".".join(map(str, path))
            reasons[path] = override_reason(f"values.{key}", before)
    return reasons


def value_in(values: Plain, path: ValuePath) -> Plain:
    """Return the value at a path; None if there is none.

    In a list of named items, such as `env`, the last step is the name.
    """
    *above, name = path
    parent = value_at(values, above)
    if isinstance(parent, list):
        named = (item for item in parent if isinstance(item, dict) and item.get("name") == name)
        return next((item.get("value") for item in named), None)
    return child_at(parent, name)


def _planned_reasons(plan: Plan) -> dict[ValuePath, Reason]:
    """Return the plan's own reasons by the path of their value."""
    reasons: dict[ValuePath, Reason] = {("shm", "sizeLimit"): plan.shm_reason}
    if plan.spec.launch.mode != "custom" or plan.launching.binding.to != "none":
        reasons["launch", "binding", "to"] = plan.launching.reason
    reasons |= {("launch", key): reason for key, reason in plan.framework.reasons.items()}
    for index, group in enumerate(plan.groups):
        group_path: ValuePath = ("worker",) if len(plan.groups) == 1 else ("workerGroups", index)
        for key, reason in group.reasons.items():
            # The name of a resource contains dots.
            _, limit, resource = key.partition("resources.limits.")
            steps = ["resources", "limits", resource] if limit else key.split(".")
            variable = key.removeprefix("env.")
            is_users = key != variable and variable in plan.spec.train.env
            # All groups have the variables of train.env.
            root: ValuePath = ("worker",) if is_users else group_path
            reasons[(*root, *steps)] = reason
    return reasons


def _worker(plan: Plan, group: GroupPlan, common: list[Plain]) -> dict[str, Plain]:
    """Return the values of a group's workers; `common` are the variables that all groups have."""
    nodes = group.group
    own_paths = _paths(plan, nodes.name)
    interfaces = plan.launching.group_env.get(nodes.name, {})
    worker: dict[str, Plain] = {
        "number": nodes.count,
        "spares": nodes.spares or None,
        "minimum": nodes.minimum,
        "slots": group.slots,
    }
    own_env = {**group.env, **interfaces, **own_paths}
    # Add each variable once: one of train.env is among the common ones, and the API refuses two
    # variables of the same name.
    users_env = plan.spec.train.env
    own_env = {name: value for name, value in own_env.items() if name not in users_env}
    worker["env"] = [*_environment(own_env), *common]
    worker["resources"] = _omit_empty(requests=dict(group.requests), limits=dict(group.limits))
    worker.update(_scheduling(nodes))
    if not nodes.shared and "podAntiAffinity" not in nodes.affinity:
        # Ranks of two workers on one node would be bound to the same cores.
        worker["spread"] = "Required"
    volumes = {n: v for n, v in plan.spec.volumes.items() if _is_only_in(plan, v, nodes.name)}
    worker["volumes"] = [_volume(name, volume) for name, volume in volumes.items()]
    worker["volumeMounts"] = [_mount(name, volume) for name, volume in volumes.items()]
    return _omit_empty(**worker)


def _master(plan: Plan) -> dict[str, Plain]:
    """Return the values of the master, which runs no rank.

    It is scheduled like the first group, to reach the same volumes. It does not follow workers to
    nodes that the provider may reclaim, because losing it would end the attempt.
    """
    train = plan.spec.train
    clients = launcher_memory(plan.framework.mode, plan.workers)
    memory = max(MASTER_MEMORY_BYTES, clients)
    requests = {"cpu": cpu_text(MASTER_MILLICPU), "memory": memory_text(memory)}
    master: dict[str, Plain] = {"args": list(train.command), "resources": {"requests": requests}}
    groups = [group.group for group in plan.groups]
    steady = [group for group in groups if drop_spot(group) == group]
    master.update(_scheduling(steady[0] if steady else drop_spot(groups[0])))
    master["backoffLimit"] = train.backoff_limit
    master["activeDeadlineSeconds"] = train.active_deadline_seconds
    return _omit_empty(**master)


def _launch(plan: Plan) -> dict[str, Plain]:
    launch = plan.spec.launch
    binding = plan.launching.binding
    mode = None if plan.framework.mode == "mpirun" else plan.framework.mode
    return _omit_empty(
        mode=mode,
        framework=plan.framework.name,
        binding=_omit_empty(
            to=None if mode == "custom" and binding.to == "none" else binding.to,
            coresPerRank=binding.cores_per_rank or None,
            ranksPerSocket=binding.ranks_per_socket or None,
        ),
        options=list(launch.options),
        preload=list(plan.framework.preload),
        workersTimeoutSeconds=launch.workers_timeout_seconds,
        allowIdleWorkers=launch.allow_idle_workers or None,
    )


def _scheduling(nodes: NodeGroup) -> dict[str, Plain]:
    """Return the values that let pods run on a group's nodes."""
    tolerations = [
        _omit_empty(
            key=toleration.taint,
            operator=toleration.operator,
            value=toleration.value,
            effect=toleration.effect,
            tolerationSeconds=toleration.toleration_seconds,
        )
        for toleration in nodes.tolerations
    ]
    return _omit_empty(
        nodeSelector=dict(nodes.node_selector),
        affinity=copy.deepcopy(dict(nodes.affinity)),
        tolerations=tolerations,
    )


def _is_everywhere(plan: Plan, volume: Volume) -> bool:
    """Return whether all groups, and so the master, mount a volume."""
    names = {group.name for group in plan.spec.nodes}
    return not volume.groups or names <= set(volume.groups)


def _is_only_in(plan: Plan, volume: Volume, group: str) -> bool:
    return group in volume.groups and not _is_everywhere(plan, volume)


def _paths(plan: Plan, group: str | None) -> dict[str, str]:
    """Return path variables of volumes of `group` but not of all groups; None: those of all."""
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
    """Return variables in a container's form: each a text, or a map for `valueFrom`."""
    entries: list[Plain] = []
    for name, value in env.items():
        if isinstance(value, str):
            entries.append({"name": name, "value": value})
        else:
            entries.append({"name": name, "valueFrom": dict(value)})
    return entries


def _volume(name: str, volume: Volume) -> dict[str, Plain]:
    """Return a volume in a pod's form; only the first of its sources counts."""
    read_only: dict[str, Plain] = {"readOnly": True} if volume.read_only else {}
    if volume.host_path is not None:
        # Without the data directory, the pod fails and names it, instead of training without data.
        kind = "Directory" if volume.read_only else "DirectoryOrCreate"
        return {"name": name, "hostPath": {"path": volume.host_path, "type": kind}}
    if volume.pvc is not None:
        return {"name": name, "persistentVolumeClaim": {"claimName": volume.pvc, **read_only}}
    if volume.nfs is not None:
        server = volume.nfs.server
        return {"name": name, "nfs": {"server": server, "path": volume.nfs.path, **read_only}}
    if volume.config_map is not None:
        return {"name": name, "configMap": {"name": volume.config_map}}
    if volume.secret is not None:
        return {"name": name, "secret": {"secretName": volume.secret}}
    return {"name": name, "emptyDir": copy.deepcopy(dict(volume.empty_dir or {}))}


def _mount(name: str, volume: Volume) -> dict[str, Plain]:
    target = mount_path(name, volume)
    read_only = volume.read_only or None
    return _omit_empty(name=name, mountPath=target, readOnly=read_only, subPath=volume.sub_path)


def _omit_empty(**pairs: Plain) -> dict[str, Plain]:
    """Leave out pairs with None, an empty list or an empty map; keep 0 and False."""
    return {key: value for key, value in pairs.items() if value not in (None, [], {}, ())}
