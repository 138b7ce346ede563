"""The veth pair that connects a node: the first one to the machine, the second one to the first."""

from __future__ import annotations

import subprocess

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.localkube.instance import Instance
from devtools.localkube.node_setup import NODE_INTERFACE
from devtools.localkube.record import Record


def inside(instance: Instance) -> list[str]:
    """The words before a command that run it in the node's network. Raises DevtoolsError."""
    record = Record.read(instance)
    if record is None or not record.init.is_alive():
        raise DevtoolsError(
            f"node {instance.node_name} is not running",
            "start it: python -m devtools.localkube up",
        )
    return ["nsenter", f"--net=/proc/{record.init.pid}/ns/net"]


def connect(instance: Instance, init: int) -> None:
    """Makes the pair and sets up its other end; the node sets up its own. init: its process 1."""
    link, node_ip = instance.link, str(instance.node_ip)
    peer = ("peer", "name", NODE_INTERFACE, "netns", str(init))
    _ip(instance, "link", "add", link, "type", "veth", *peer)
    address = f"{instance.gateway_ip}/{instance.link_prefix}"
    _ip(instance, "address", "add", address, "dev", link)
    _ip(instance, "link", "set", link, "up")
    # So that the machine reaches pods and Services too, and the first node the pods of the second.
    behind = instance.network if instance.node == 1 else instance.pods
    _ip(instance, "route", "add", str(behind), "via", node_ip)


def remove(instance: Instance) -> None:
    """Removes the pair if it is there: the kernel does so some time after the node has ended."""
    try:
        command = [*_other_end(instance), "ip", "link", "delete", instance.link]
    except DevtoolsError:
        # It went with the first node.
        return
    subprocess.run(command, check=False, capture_output=True)


def _other_end(instance: Instance) -> list[str]:
    return [] if instance.node == 1 else inside(instance.first)


def _ip(instance: Instance, *arguments: str) -> None:
    read_output(
        [*_other_end(instance), "ip", *arguments],
        remedy="if that name or address is in use, give this cluster another LOCALKUBE_NAME",
    )
