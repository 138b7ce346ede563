"""Makes a plan from a spec: slots, threads, bindings, resources, environment. Pure.

Each planned number carries a `Reason`; docs/planning.md has the rules and their sources.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hvd_pods.shared.thread_counts import YIELD
from hvdchart.errors import SpecError
from hvdchart.plan import rules
from hvdchart.plan.binding import plan_launch
from hvdchart.plan.framework import Framework, plan_framework
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.plan.rules import Reason
from hvdchart.plan.warnings import find_warnings
from hvdchart.quantity import memory_text
from hvdchart.spec import topology
from hvdchart.spec.fields import to_camel_case
from hvdchart.spec.load import checked_spec, read_spec
from hvdchart.spec.model import NodeGroup, Spec
from hvdchart.spec.paths import nearest_node
from hvdchart.spec.yaml_tree import Node, SourcePlace, from_plain


def make_plan(spec: Spec, tree: Node | None = None) -> Plan:
    """Plan a spec that was built or changed in Python. Raises SpecError if it is wrong.

    `tree` is the YAML that the spec was read from. Later errors in the spec's `values` name their
    places in it.
    """
    return _plan(checked_spec(spec), tree)


def plan_tree(tree: Node) -> Plan:
    """Plan a spec in YAML. Raises SpecError if it is wrong."""
    return _plan(read_spec(tree), tree)


def _plan(spec: Spec, tree: Node | None) -> Plan:
    framework = plan_framework(spec)
    _check_mpi(spec, framework, tree)
    spec = dataclasses.replace(spec, launch=dataclasses.replace(spec.launch, mode=framework.mode))
    groups = tuple(_plan_group(spec, index, framework) for index in range(len(spec.nodes)))
    launching = plan_launch(spec, [group.slots for group in groups])
    _check_state(spec, groups, tree)
    # The chart has one size for all groups.
    largest = max(groups, key=lambda group: group.shm)
    return Plan(
        spec=spec,
        groups=groups,
        launching=launching,
        shm=largest.shm,
        shm_reason=largest.reasons["shm"],
        warnings=tuple(find_warnings(spec, groups, launching, framework)),
        framework=framework,
        tree=tree,
    )


def _check_mpi(spec: Spec, framework: Framework, tree: Node | None) -> None:
    """Raise SpecError if each rank of an MPI program would train alone."""
    if (framework.name, framework.mode) != ("mpi", "direct"):
        return
    path = ("launch", "mode")
    expected = "mpirun"
    if spec.train.framework:
        because = "`train.framework` is mpi"
    else:
        because = framework.reasons["framework"].because
        expected = f"{expected}; or, if the ranks do not use MPI, another `train.framework`"
    node = nearest_node(tree or from_plain({}, SourcePlace("the spec")), path)
    problem = f"{because}, and `launch.mode` is direct: each rank would train alone"
    raise SpecError(str(node.place), ".".join(path), problem, expected)


def _check_state(spec: Spec, groups: tuple[GroupPlan, ...], tree: Node | None) -> None:
    """Raise SpecError for a state whose commits do not fit into a worker's shared memory.

    If the spec does not give the size of the shared memory, the limit is half of the worker's
    memory.
    """
    needed, what_is_kept = _plan_commits(spec)
    for index, group in enumerate(groups):
        is_given = any(tuning.shm for tuning in (group.group.tuning, spec.tuning))
        room = group.shm if is_given or group.memory is None else group.memory // 2
        if needed and max(needed, group.shm) > room:
            node = nearest_node(tree or from_plain({}, SourcePlace("the spec")), ("train", "state"))
            memory_kind = (
                "of shared memory" if is_given else "of memory to share, half of its memory"
            )
            problem = (
                f"what a worker keeps of the state needs {memory_text(needed)} ({what_is_kept}), "
                f"and a worker of nodes[{index}] has {memory_text(room)} {memory_kind}"
            )
            raise SpecError(str(node.place), "train.state", problem, "a smaller state")


def _plan_commits(spec: Spec) -> tuple[int, str]:
    """Return the bytes of the state's commits in a worker, and a text about them.

    With a minimum, a run may have so few workers, which then hold all of the state.
    """
    workers = sum(group.minimum or topology.workers(group, spec) for group in spec.nodes)
    return rules.commits(spec.train.state or 0, workers, is_sharded=spec.train.sharded)


class _Choices:
    """Chooses between given and planned numbers, and collects the reasons by key of the values."""

    def __init__(self, spec: Spec, index: int) -> None:
        group = spec.nodes[index]
        self.spec = spec
        self.tunings = ((f"nodes[{index}].tuning", group.tuning), ("tuning", spec.tuning))
        self.reasons: dict[str, Reason] = {}

    def apply_tuning(self, key: str, field: str, planned: int | None, reason: Reason) -> Any:
        """Return the number for `key`: `field` of the group's or the spec's tuning, else `planned`.

        Stores the reason: `reason` for the planned number. If there is neither, returns None and
        stores no reason.
        """
        for name, tuning in self.tunings:
            value = getattr(tuning, field)
            if value is not None:
                instead = None if planned is None else rules.shown(key, planned)
                self.reasons[key] = rules.override_reason(f"{name}.{to_camel_case(field)}", instead)
                return value
        if planned is not None:
            self.reasons[key] = reason
        return planned

    def apply_worker_value(self, name: str, planned: int) -> int:
        """Return `name` in the spec's values.worker, with its reason, or else `planned`."""
        number = topology.override(self.spec, name)
        if number is None:
            return planned
        self.reasons[name] = rules.override_reason(f"values.worker.{name}", planned)
        return number

    def variable(self, name: str, planned: str | None) -> str | None:
        """Return the text of a planned variable, unless train.env sets it.

        Returns None for a variable that is not planned, and if train.env takes it from an object.
        """
        value = self.spec.train.env.get(name)
        if value is None:
            return planned
        self.reasons[f"env.{name}"] = rules.override_reason(f"train.env.{name}", planned)
        return value if isinstance(value, str) else None


def _plan_group(spec: Spec, index: int, framework: Framework) -> GroupPlan:
    """Plan one group; the numbers in values.worker override all others."""
    group = spec.nodes[index]
    choices = _Choices(spec, index)
    choices.reasons["number"] = rules.override_reason(f"nodes[{index}].count")
    if group.spares:
        choices.reasons["spares"] = rules.override_reason(f"nodes[{index}].spares")
    if group.minimum:
        choices.reasons["minimum"] = rules.override_reason(f"nodes[{index}].minimum")
    count = choices.apply_worker_value("number", group.count)
    spares = choices.apply_worker_value("spares", group.spares)
    slots = choices.apply_worker_value(
        "slots", choices.apply_tuning("slots", "slots", *rules.slots(group))
    )
    group = dataclasses.replace(group, count=count, spares=spares)
    env = _environment(choices, group, slots, framework)
    cpu = choices.apply_tuning("resources.requests.cpu", "cpu", *rules.cpu_request(group))
    memory = choices.apply_tuning(
        "resources.requests.memory", "memory", *rules.memory_request(group)
    )
    if group.gpus:
        choices.reasons[f"resources.limits.{group.gpu_resource}"] = rules.ALL_GPUS_REASON
    if group.rdma:
        choices.reasons[f"resources.limits.{group.rdma.resource}"] = rules.RDMA_REASON
    shm = choices.apply_tuning("shm", "shm", *rules.shm(group, slots, memory, _plan_commits(spec)))
    return GroupPlan(group, slots, env, cpu, memory, shm, choices.reasons)


def _environment(
    choices: _Choices, group: NodeGroup, slots: int, framework: Framework
) -> dict[str, str]:
    """Return the variables of each rank; without threads if a GPU node's cores are unknown."""
    planned = _planned_environment(choices, group, slots)
    if framework.name == "jax" and not group.gpus:
        planned[rules.XLA_THREADS] = planned["OMP_NUM_THREADS"]
        choices.reasons[f"env.{rules.XLA_THREADS}"] = rules.XLA_REASON
    env = {name: choices.variable(name, value) for name, value in planned.items()}
    return {name: value for name, value in env.items() if value is not None}


def _planned_environment(choices: _Choices, group: NodeGroup, slots: int) -> dict[str, str | None]:
    """Return the variables that the plan may set; None for a variable that it does not set."""
    cores = rules.cores_per_rank(group, slots)
    gpus = bool(group.gpus)
    threads = {
        "OMP_NUM_THREADS": ("omp_threads", rules.omp_threads(group, cores)),
        "TF_NUM_INTRAOP_THREADS": ("intra_op_threads", rules.intra_op_threads(cores, gpus)),
        "TF_NUM_INTEROP_THREADS": ("inter_op_threads", rules.inter_op_threads(cores, gpus)),
        "KMP_BLOCKTIME": ("kmp_blocktime", rules.KMP_BLOCKTIME),
        "KMP_AFFINITY": ("kmp_affinity", rules.KMP_AFFINITY),
    }
    env: dict[str, str | None] = {}
    for name, (field, rule) in threads.items():
        value = choices.apply_tuning(f"env.{name}", field, *rule)
        env[name] = None if value is None else str(value)
    one_dnn = choices.apply_tuning(f"env.{rules.ONEDNN}", "one_dnn", *rules.one_dnn(group))
    env[rules.ONEDNN] = None if one_dnn is None else str(int(bool(one_dnn)))
    rounds = choices.apply_tuning(f"env.{rules.FPMATH}", "bfloat16", *rules.BFLOAT16)
    env[rules.FPMATH] = "BF16" if rounds else None
    if not rounds:
        choices.reasons.pop(f"env.{rules.FPMATH}", None)
    if group.shared:
        env[YIELD] = "1"
        choices.reasons[f"env.{YIELD}"] = rules.YIELD_REASON
    return env
