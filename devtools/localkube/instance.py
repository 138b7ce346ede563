"""What one cluster is called, and everything that follows from its name: directories, addresses,
link, cgroup.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import LocalkubeError

DEFAULT_NAME = "hvd"
# RFC 2544 sets this range aside for benchmarks: no real network routes it. A cluster takes one /20
# of it.
BENCHMARK_RANGE = IPv4Network("198.18.0.0/15")
CLUSTERS = list(BENCHMARK_RANGE.subnets(new_prefix=20))
# An interface name has at most 15 bytes (IFNAMSIZ), and ours begin with "lk-".
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,11}")


@dataclass(frozen=True)
class Instance:
    """One cluster; two with different names run side by side."""

    name: str

    @property
    def network(self) -> IPv4Network:
        """All addresses of this cluster: a /20, the first one for the default name, else chosen by
        the name.
        """
        if self.name == DEFAULT_NAME:
            return CLUSTERS[0]
        digest = hashlib.sha256(self.name.encode()).digest()
        return CLUSTERS[1 + digest[0] % (len(CLUSTERS) - 1)]

    @property
    def node_ip(self) -> IPv4Address:
        """The node: API server, kubelet, cluster DNS."""
        return self.network[1]

    @property
    def host_ip(self) -> IPv4Address:
        """The machine itself, as the cluster sees it."""
        return self.network[2]

    @property
    def link_prefix(self) -> int:
        """The node and the host are the two addresses of a /30."""
        return 30

    @property
    def services(self) -> IPv4Network:
        return list(self.network.subnets(new_prefix=24))[1]

    @property
    def api_service_ip(self) -> IPv4Address:
        """The `kubernetes` Service: by rule the first address of the service range."""
        return self.services[1]

    @property
    def pods(self) -> IPv4Network:
        """509 pod addresses; a node is asked for at least 110."""
        return list(self.network.subnets(new_prefix=23))[1]

    @property
    def api_url(self) -> str:
        return f"https://{self.node_ip}:6443"

    @property
    def link(self) -> str:
        """The host's end of the one cable into the cluster's network namespace."""
        return f"lk-{self.name}"

    @property
    def node_name(self) -> str:
        return f"localkube-{self.name}"

    @property
    def cgroup(self) -> str:
        """The parent of all cgroups of this cluster, in every hierarchy."""
        return f"localkube-{self.name}"

    @property
    def state(self) -> Path:
        """Cluster state: etcd, keys, volumes, logs. Removed by `down`."""
        return Path("/var/lib/localkube") / self.name

    @property
    def run(self) -> Path:
        """Sockets and process records; gone after a reboot. Short, since a socket's path has at
        most 107 bytes.
        """
        return Path("/run/localkube") / self.name

    @property
    def store(self) -> Path:
        """containerd's images, kept by `down` so that the next cluster needs no loading."""
        return cache_dir() / "localkube" / self.name / "containerd"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def resolv_conf(self) -> Path:
        return self.state / "resolv.conf"


def current() -> Instance:
    """The cluster that $LOCALKUBE_NAME names, `hvd` when unset."""
    name = os.environ.get("LOCALKUBE_NAME") or DEFAULT_NAME
    if not NAME_PATTERN.fullmatch(name):
        raise LocalkubeError(
            f"LOCALKUBE_NAME={name!r} cannot name a cluster",
            "use 1 to 12 of a-z, 0-9 and '-', beginning with a letter",
        )
    return Instance(name)
