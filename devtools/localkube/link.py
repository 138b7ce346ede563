"""The veth pair that connects a node: the first one to the machine, the others to the first."""

from __future__ import annotations

import subprocess

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.localkube.instance import Instance
from devtools.localkube.node_processes import NodeProcesses
from devtools.localkube.node_setup import NODE_INTERFACE

# A queue sends this many bytes at once, including a packet of the largest size, and drops packets
# that would wait longer.
BURST = "128kb"
MAX_QUEUE_TIME = "20ms"


def network_prefix(instance: Instance) -> list[str]:
    """Return the prefix of a command that runs it in the node's network.

    Raises DevtoolsError when the node does not run.
    """
    processes = NodeProcesses.read(instance)
    if processes is None or not processes.init.is_alive():
        raise DevtoolsError(
            f"node {instance.node_name} is not running", "start it: python -m devtools.localkube up"
        )
    return ["nsenter", f"--net=/proc/{processes.init.pid}/ns/net"]


def connect_node(instance: Instance, init: int) -> None:
    """Create the pair and set up its other end; the node sets up its own. init: its process 1."""
    link = instance.link
    node_ip = str(instance.node_ip)
    peer = ("peer", "name", NODE_INTERFACE, "netns", str(init))
    _ip(instance, "link", "add", link, "type", "veth", *peer)
    address = f"{instance.gateway_ip}/{instance.link_prefix}"
    _ip(instance, "address", "add", address, "dev", link)
    _ip(instance, "link", "set", link, "up")
    # Through this route, the machine reaches pods and Services, and the first node reaches the pods
    # of the others.
    behind = instance.network if instance.node == 1 else instance.pods
    _ip(instance, "route", "add", str(behind), "via", node_ip)


def remove_link(instance: Instance) -> None:
    """Remove the pair if it exists: the kernel removes it some time after the node ends."""
    try:
        command = [*_other_end(instance), "ip", "link", "delete", instance.link]
    except DevtoolsError:
        # The kernel removed it with the first node.
        return
    subprocess.run(command, check=False, capture_output=True)


def shape(first: Instance, rate: str | None) -> list[Instance]:
    """Limit the traffic of the other running nodes in both directions, and return these nodes.
    rate: as tc(8) reads it; None removes the limits.

    Raises DevtoolsError when no other node runs, or tc refuses.
    """
    nodes = [node for node in first.others if NodeProcesses.is_running(node)]
    if not nodes:
        raise DevtoolsError(
            f"cluster {first.name!r} has no second node, so no network between nodes",
            "start one: python -m devtools.localkube add-node",
        )
    queue = (
        ["tbf", "rate", rate, "burst", BURST, "latency", MAX_QUEUE_TIME] if rate else ["noqueue"]
    )
    remedy = "give the rate as tc(8) reads it, such as 1gbit or 200mbit"
    for node in nodes:
        for place, end in ((_other_end(node), node.link), (network_prefix(node), NODE_INTERFACE)):
            command = [*place, "tc", "qdisc", "replace", "dev", end, "root", *queue]
            read_output(command, remedy=remedy)
    return nodes


def _other_end(instance: Instance) -> list[str]:
    return [] if instance.node == 1 else network_prefix(instance.first)


def _ip(instance: Instance, *arguments: str) -> None:
    read_output(
        [*_other_end(instance), "ip", *arguments],
        remedy="if that name or address is in use, give this cluster another LOCALKUBE_NAME",
    )
