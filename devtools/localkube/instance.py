"""A cluster's name and all that follows from it: directories, addresses, interface, cgroup."""

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
# RFC 2544 reserves this range for benchmarks, so no real network uses it. Each cluster has a /20.
BENCHMARK_RANGE = IPv4Network("198.18.0.0/15")
CLUSTERS = list(BENCHMARK_RANGE.subnets(new_prefix=20))
# An interface name has at most 15 bytes (IFNAMSIZ), of which "lk-" takes three.
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,11}")


@dataclass(frozen=True)
class Instance:
    """One cluster. Clusters of different names can run at the same time."""

    name: str

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
        """The address of the node: API server, kubelet and cluster DNS."""
        return self.network[1]

    @property
    def host_ip(self) -> IPv4Address:
        """The address by which the cluster reaches the machine itself."""
        return self.network[2]

    @property
    def link_prefix(self) -> int:
        """The prefix length of the veth pair's network, which has two addresses: node and host."""
        return 30

    @property
    def services(self) -> IPv4Network:
        return list(self.network.subnets(new_prefix=24))[1]

    @property
    def api_service_ip(self) -> IPv4Address:
        """The Service `kubernetes`, which always has the first address of the service range."""
        return self.services[1]

    @property
    def pods(self) -> IPv4Network:
        """The pods' addresses: 509, more than the kubelet's maxPods."""
        return list(self.network.subnets(new_prefix=23))[1]

    @property
    def api_url(self) -> str:
        return f"https://{self.node_ip}:6443"

    @property
    def link(self) -> str:
        """The machine's end of the veth pair into the cluster's network namespace."""
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
        """Sockets and process records, gone after a reboot. A short path, because the path of a
        socket has at most 107 bytes.
        """
        return Path("/run/localkube") / self.name

    @property
    def store(self) -> Path:
        """containerd's images. `down` keeps them, so that the next start need not load them."""
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
    """The cluster that $LOCALKUBE_NAME names (default: hvd). Raises LocalkubeError for a name that
    cannot be used.
    """
    name = os.environ.get("LOCALKUBE_NAME") or DEFAULT_NAME
    if not NAME_PATTERN.fullmatch(name):
        raise LocalkubeError(
            f"LOCALKUBE_NAME={name!r} is not a valid name of a cluster",
            "use 1 to 12 characters of a-z, 0-9 and '-', starting with a letter",
        )
    return Instance(name)
