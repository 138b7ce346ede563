"""Plan how ranks are bound to cores and which network they use, for any launcher. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvd_pods.shared.binding import Binding
from hvd_pods.shared.launcher_options import list_options
from hvdchart.plan import rules
from hvdchart.plan.rules import FROM_HVDCHART, FROM_SPEC, Reason
from hvdchart.spec import topology
from hvdchart.spec.launchers import common_interface, interface_variables
from hvdchart.spec.model import NodeGroup, Spec


@dataclass(frozen=True)
class LaunchPlan:
    """The launcher's part of the plan.

    `interface` is the interface that all groups name. When they name different ones, it is None,
    and `group_env` has the variables of each group, by name. `transport` is network.transport, or
    empty.
    """

    binding: Binding
    reason: Reason
    interface: str | None
    group_env: Mapping[str, Mapping[str, str]]
    transport: str


def plan_launch(spec: Spec, slots: Sequence[int]) -> LaunchPlan:
    """Plan how ranks are bound and started; `slots` are the groups' ranks per node.

    mpirun has one binding for the whole run: if no binding fits all groups, ranks are not bound.
    """
    target, reason = _wanted_binding(spec, slots)
    binding = _common_binding(spec.nodes, slots, target)
    if binding is None and target == "core":
        # Groups with different numbers of sockets may still share one binding: by socket.
        reason = Reason("groups have different cores: bind each rank to its socket", FROM_HVDCHART)
        binding = _common_binding(spec.nodes, slots, "socket")
    if binding is None:
        reason = Reason("groups have different ranks per socket: none fits all", FROM_HVDCHART)
    # CPU ranks reduce through MPI, which uses RDMA devices through UCX; NCCL finds them itself.
    transport = "RDMA" if all(group.rdma and not group.gpus for group in spec.nodes) else ""
    common = common_interface(spec)
    group_env = {
        group.name: interface_variables(group.interface, transport)
        for group in spec.nodes
        if group.interface and not common
    }
    return LaunchPlan(binding or Binding("none"), reason, common, group_env, transport)


def _wanted_binding(spec: Spec, slots: Sequence[int]) -> tuple[str, Reason]:
    """Return the binding target of ranks, and the reason: the spec's own choice, else by rule."""
    for index, group in enumerate(spec.nodes):
        if group.tuning.binding:
            return group.tuning.binding, rules.override_reason(f"nodes[{index}].tuning.binding")
    if spec.tuning.binding:
        return spec.tuning.binding, rules.override_reason("tuning.binding")
    if any("binding" in option for _, option in list_options(spec.launch.options)):
        return "none", Reason("`launch.options` binds or maps the ranks", FROM_SPEC)
    if spec.launch.mode == "custom":
        return "none", Reason("the command line is your own", FROM_SPEC)
    for group, ranks in zip(spec.nodes, slots, strict=True):
        if not group.gpus and ranks > topology.cores(group) - topology.reserved_cores(group):
            return "none", Reason("more ranks than cores", FROM_HVDCHART)
    return rules.binding(list(spec.nodes))


def _common_binding(nodes: Sequence[NodeGroup], slots: Sequence[int], to: str) -> Binding | None:
    """Return the binding that all groups share; None when they differ or one cannot be bound."""
    bindings = {_binding(group, ranks, to) for group, ranks in zip(nodes, slots, strict=True)}
    return bindings.pop() if len(bindings) == 1 else None


def _binding(group: NodeGroup, ranks: int, to: str) -> Binding | None:
    """Return the binding for a group's nodes; None when its sockets cannot share the ranks.

    Ranks take the next cores in order, and fill one socket after the other. On a virtual machine,
    each CPU may appear as a socket; ranks fill these in the same order. If the ranks of a socket
    leave cores free, or the kubelet keeps some cores of the first socket, the next rank would
    straddle sockets: then each socket is named.
    """
    if to == "none":
        return Binding("none")
    sockets = group.sockets or 1
    is_even = ranks % sockets == 0
    per_socket = ranks // sockets
    if to == "socket":
        return Binding("socket", ranks_per_socket=per_socket) if is_even else None
    cores = rules.cores_per_rank(group, ranks)
    straddles = sockets > 1 and cores * per_socket != group.cores_per_socket
    named = rules.ranks_of_a_socket(group, ranks) if straddles else 0
    return Binding("core", cores, named)
