"""A cluster's name and the settings that follow from it: directories, addresses, interface, cgroup.

Each node has its own value of most settings. The first node has the keys and the control plane.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import DevtoolsError

DEFAULT_NAME = "hvd"
# The number of the last node that can join.
LAST_NODE = 4
# RFC 2544 reserves this range for benchmarks, so no real network uses it. Each cluster has a /20.
BENCHMARK_RANGE = IPv4Network("198.18.0.0/15")
CLUSTERS = list(BENCHMARK_RANGE.subnets(new_prefix=20))
# An interface name has at most 15 bytes (IFNAMSIZ); the prefix "lk-" takes three.
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,11}")


@dataclass(frozen=True)
class Instance:
    """One node of a cluster. Clusters of different names can run at the same time.

    node: 1 has the control plane, and is the whole cluster until other nodes join.
    """

    name: str
    node: int = 1

    @property
    def first(self) -> Instance:
        """The node with the control plane."""
        return Instance(self.name)

    @property
    def others(self) -> list[Instance]:
        """The nodes that can join and leave the running cluster."""
        return [Instance(self.name, node) for node in range(2, LAST_NODE + 1)]

    @property
    def label(self) -> str:
        """The name of this node's own objects. No cluster's name contains a dot."""
        return self.name if self.node == 1 else f"{self.name}.{self.node}"

    @property
    def network(self) -> IPv4Network:
        """All addresses of this cluster: a /20. The default name has the first one; other names
        share the rest by their hash.
        """
        if self.name == DEFAULT_NAME:
            return CLUSTERS[0]
        digest = hashlib.sha256(self.name.encode()).digest()
        return CLUSTERS[1 + digest[0] % (len(CLUSTERS) - 1)]

    @property
    def node_ip(self) -> IPv4Address:
        """The node's own address."""
        return self._link_network[1]

    @property
    def control_ip(self) -> IPv4Address:
        """The address of the API server and of the cluster DNS."""
        return self.first.node_ip

    @property
    def gateway_ip(self) -> IPv4Address:
        """The address at the other end of the node's veth pair: the machine's address for the first
        node, the first node's address for the other nodes.
        """
        return self._link_network[2]

    @property
    def link_prefix(self) -> int:
        """The prefix length of the veth pair's network, which has two addresses."""
        return self._link_network.prefixlen

    @property
    def _link_network(self) -> IPv4Network:
        return list(self.network.subnets(new_prefix=30))[self.node - 1]

    @property
    def services(self) -> IPv4Network:
        """The network of Services. The Service `kubernetes` always has its first address."""
        return list(self.network.subnets(new_prefix=24))[1]

    @property
    def pods(self) -> IPv4Network:
        """The addresses of the node's pods: 509, more than the kubelet's maxPods."""
        return list(self.network.subnets(new_prefix=23))[self.node]

    @property
    def api_url(self) -> str:
        return f"https://{self.control_ip}:6443"

    @property
    def api_ready_url(self) -> str:
        """Where the API server says that it is ready."""
        return f"{self.api_url}/readyz"

    @property
    def dns_ready_url(self) -> str:
        """Where the cluster's DNS server, which runs on the first node, says that it is ready."""
        return f"http://{self.control_ip}:8181/ready"

    @property
    def link(self) -> str:
        """The other end of the veth pair into the node's network namespace. It is on the machine
        for the first node, and in the first node's namespace for the other nodes.
        """
        return f"lk-{self.name}" if self.node == 1 else f"node{self.node}"

    @property
    def node_name(self) -> str:
        """The node's name, which is also the parent of all its cgroups in every hierarchy."""
        return f"localkube-{self.label}"

    @property
    def state(self) -> Path:
        """Cluster state: etcd, keys, volumes, logs. Removed by `down`."""
        return Path("/var/lib/localkube") / self.label

    @property
    def run(self) -> Path:
        """Sockets and the file with the processes. A reboot removes them.

        The path is short, because the path of a socket has at most 107 bytes.
        """
        return Path("/run/localkube") / self.label

    @property
    def store(self) -> Path:
        """containerd's images. `down` keeps them, so that the next start need not load them."""
        return cache_dir() / "localkube" / self.label / "containerd"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def pki(self) -> Path:
        return self.first.state / "pki"

    @property
    def kubelet_keys(self) -> Path:
        """The node's own keys: suffixes .crt and .key for its server, .conf for its client."""
        return self.pki / f"kubelet-{self.node}"

    @property
    def status(self) -> Path:
        """The file to which the node writes the state of its processes."""
        return self.run / "node.json"

    @property
    def kubeconfig(self) -> Path:
        return self.first.state / "kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def resolv_conf(self) -> Path:
        return self.state / "resolv.conf"


def current_instance() -> Instance:
    """Return the cluster that $LOCALKUBE_NAME names (default: hvd).

    Raises DevtoolsError for a name that no network interface can have.
    """
    name = os.environ.get("LOCALKUBE_NAME") or DEFAULT_NAME
    if not NAME_PATTERN.fullmatch(name):
        raise DevtoolsError(
            f"LOCALKUBE_NAME={name!r} is not a valid name of a cluster",
            "use 1 to 12 characters of a-z, 0-9 and '-', starting with a letter",
        )
    return Instance(name)
