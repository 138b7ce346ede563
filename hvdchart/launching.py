"""How the ranks are mapped to cores and started: the launcher's options, interfaces. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvdchart import rules
from hvdchart.rules import Reason
from hvdchart.spec_types import NodeGroup, Spec

# One interface, four readers: Open MPI's data and control connections, NCCL, Horovod's Gloo.
INTERFACE_VARIABLES = (
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "NCCL_SOCKET_IFNAME",
    "HOROVOD_GLOO_IFACE",
)


_UNBOUND = "slot"
_OURS = "hvdchart"


@dataclass(frozen=True)
class Launching:
    """The launcher's part of the plan; `binding` is socket, core or none.

    `interface` is the one that all groups name; when they differ it is None and each group's
    variables stand in `group_env`, by group name.
    """

    binding: str
    options: tuple[str, ...]
    reason: Reason
    interface: str | None
    group_env: Mapping[str, Mapping[str, str]]


def plan_launching(spec: Spec, slots: Sequence[int]) -> Launching:
    """The launcher's options; `slots` are the groups' ranks a node."""
    binding, why = _wanted_binding(spec, slots)
    mapping = _common_mapping(spec.nodes, slots, binding)
    if mapping is None and binding == "core":
        # Groups with unlike sockets may still have one mapping in common: by socket.
        binding, why = "socket", Reason("groups differ in cores: each rank to its socket", _OURS)
        mapping = _common_mapping(spec.nodes, slots, binding)
    if mapping is None:
        binding, why = "none", Reason("groups differ in ranks a socket: no one mapping", _OURS)
    options = _options(spec, mapping or _UNBOUND, binding)
    interface, group_env = _interfaces(spec.nodes)
    return Launching(binding, (*options, *spec.launch.options), why, interface, group_env)


def _wanted_binding(spec: Spec, slots: Sequence[int]) -> tuple[str, Reason]:
    for index, group in enumerate(spec.nodes):
        if group.tuning.binding:
            return group.tuning.binding, rules.said(f"nodes[{index}].tuning.binding")
    if spec.tuning.binding:
        return spec.tuning.binding, rules.said("tuning.binding")
    if spec.launch.mode == "elastic":
        return "none", Reason("elastic runs are started without MPI", "Horovod")
    for group, ranks in zip(spec.nodes, slots, strict=True):
        if not group.gpus and ranks > rules.cores(group) - rules.reserved_cores(group):
            return "none", Reason("more ranks than cores", _OURS)
    return rules.binding(list(spec.nodes))


def _common_mapping(nodes: Sequence[NodeGroup], slots: Sequence[int], binding: str) -> str | None:
    """The --map-by that serves all groups; None when there is none."""
    found = {_mapping(group, ranks, binding) for group, ranks in zip(nodes, slots, strict=True)}
    return found.pop() if len(found) == 1 else None


def _mapping(group: NodeGroup, ranks: int, binding: str) -> str | None:
    """Open MPI's --map-by for a group's nodes; None when its sockets cannot share the ranks.

    Ranks in slot order, each on the next so many cores (PE), fill one socket after the other, and
    do so as well on a virtual machine that shows each of its CPUs as a socket. Where the ranks of
    a socket leave cores over, the next rank would straddle sockets: there each socket is named.
    """
    if binding == "none":
        return _UNBOUND
    sockets = group.sockets or 1
    is_even = ranks % sockets == 0
    per_socket = ranks // sockets
    if binding == "socket":
        return f"ppr:{per_socket}:socket" if is_even else None
    cores = rules.cores_per_rank(group, ranks)
    straddles = is_even and (group.cores_per_socket or 0) % per_socket > 0
    return f"ppr:{per_socket}:socket:PE={cores}" if straddles else f"slot:PE={cores}"


def _options(spec: Spec, mapping: str, binding: str) -> list[str]:
    if spec.launch.mode in ("custom", "elastic"):
        # An elastic run is started by Gloo, which binds nothing.
        return []
    if spec.launch.mode == "horovodrun":
        # It starts ranks unbound by itself.
        if binding == "none":
            return []
        bound = f"--binding-args=--map-by {mapping} --bind-to {binding}"
        return [bound, "--mpi-args=--report-bindings"]
    report = [] if binding == "none" else ["--report-bindings"]
    options = ["--map-by", mapping, "--bind-to", binding, *report]
    return [*options, "--mca", "pml", "ucx"] if _moves_data_by_rdma(spec) else options


def _moves_data_by_rdma(spec: Spec) -> bool:
    """CPU ranks reduce through MPI, which reaches RDMA devices by UCX; NCCL finds them itself."""
    return all(group.rdma and not group.gpus for group in spec.nodes)


def _interfaces(
    nodes: Sequence[NodeGroup],
) -> tuple[str | None, dict[str, dict[str, str]]]:
    names = {group.interface for group in nodes}
    if len(names) == 1:
        return names.pop(), {}
    return None, {
        group.name: dict.fromkeys(INTERFACE_VARIABLES, group.interface)
        for group in nodes
        if group.interface
    }
