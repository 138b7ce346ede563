"""Makes a plan from a spec: slots, threads, bindings, resources, environment. Pure.

Each planned number carries a `Reason`; docs/planning.md has the rules and their sources.
"""

from __future__ import annotations

import dataclasses

from hvdchart.plan import rules
from hvdchart.plan.binding import plan_launching
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.plan.rules import Reason
from hvdchart.plan.warnings import warnings
from hvdchart.spec import topology
from hvdchart.spec.model import NodeGroup, Spec, Tuning
from hvdchart.spec.objects import camel


def make_plan(spec: Spec) -> Plan:
    """The plan of a spec. It raises nothing: reading the spec refused all contradictions."""
    groups = tuple(_plan_group(spec, index) for index in range(len(spec.nodes)))
    launching = plan_launching(spec, [group.slots for group in groups])
    largest = max(groups, key=lambda group: group.shm)
    plan = Plan(spec, groups, launching, largest.shm, largest.reasons["shm"], ())
    return dataclasses.replace(plan, warnings=tuple(warnings(plan)))


class _Choices:
    """Chooses between tuned and planned numbers, and collects the reasons by key of the values."""

    def __init__(self, where: str, group: Tuning, everywhere: Tuning) -> None:
        self.tunings = ((f"{where}.tuning", group), ("tuning", everywhere))
        self.reasons: dict[str, Reason] = {}

    def tuned(self, key: str, field: str, planned: int | None, why: Reason) -> object:
        """The number for `key`: `field` of the group's or the spec's tuning, else `planned`."""
        for name, tuning in self.tunings:
            value = getattr(tuning, field)
            if value is not None:
                self.reasons[key] = rules.given_by(f"{name}.{camel(field)}", planned)
                return value
        if planned is not None:
            self.reasons[key] = why
        return planned

    def number(self, key: str, field: str, planned: int | None, why: Reason) -> int | None:
        """As `tuned`, for whole numbers."""
        value = self.tuned(key, field, planned, why)
        return value if isinstance(value, int) else None


def _plan_group(spec: Spec, index: int) -> GroupPlan:
    group = spec.nodes[index]
    choose = _Choices(f"nodes[{index}]", group.tuning, spec.tuning)
    choose.reasons["number"] = rules.given_by(f"nodes[{index}].count")
    choose.tuned("slots", "slots", *rules.slots(group))
    slots = topology.slots(group, spec)
    env = _environment(choose, group, slots)
    cpu = choose.number("resources.requests.cpu", "cpu", *rules.cpu_request(group))
    memory = choose.number("resources.requests.memory", "memory", *rules.memory_request(group))
    if group.gpus:
        choose.reasons[f"resources.limits.{group.gpu_resource}"] = rules.ALL_GPUS
    if group.rdma:
        choose.reasons[f"resources.limits.{group.rdma.resource}"] = rules.RDMA
    shm = choose.number("shm", "shm", *rules.shm(group, slots, memory)) or 0
    return GroupPlan(group, slots, env, cpu, memory, shm, choose.reasons)


def _environment(choose: _Choices, group: NodeGroup, slots: int) -> dict[str, str]:
    """Variables of each rank; without threads where the spec does not give a GPU node's cores."""
    cores = rules.cores_per_rank(group, slots)
    planned = {
        "OMP_NUM_THREADS": ("omp_threads", rules.omp_threads(group, cores)),
        "TF_NUM_INTRAOP_THREADS": ("intra_op_threads", rules.intra_op_threads(cores)),
        "TF_NUM_INTEROP_THREADS": ("inter_op_threads", rules.inter_op_threads(cores)),
        "KMP_BLOCKTIME": ("kmp_blocktime", rules.KMP_BLOCKTIME),
        "KMP_AFFINITY": ("kmp_affinity", rules.KMP_AFFINITY),
    }
    env = {}
    for name, (field, rule) in planned.items():
        value = choose.tuned(f"env.{name}", field, *rule)
        if value is not None:
            env[name] = str(value)
    one_dnn = choose.tuned(f"env.{rules.ONEDNN}", "one_dnn", *rules.one_dnn(group))
    if one_dnn is not None:
        env[rules.ONEDNN] = str(int(bool(one_dnn)))
    if choose.tuned(f"env.{rules.FPMATH}", "bfloat16", *rules.BFLOAT16):
        env[rules.FPMATH] = "BF16"
    else:
        choose.reasons.pop(f"env.{rules.FPMATH}", None)
    if group.shared:
        env[rules.YIELD] = "1"
        choose.reasons[f"env.{rules.YIELD}"] = rules.YIELD_REASON
    return env
