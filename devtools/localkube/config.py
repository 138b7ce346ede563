"""The configuration files of the components, as text. Pure functions. Every setting that differs
from a default has a reason. Where the reason is not obvious, a comment gives it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from devtools.localkube.instance import Instance

# Where Debian's package containernetworking-plugins installs its programs.
CNI_PLUGINS = Path("/usr/lib/cni")
PAUSE_IMAGE = "docker.io/localkube/pause:1"
# Names in the state directory.
PAUSE_ARCHIVE = "pause.tar"
MANIFESTS = "manifests.json"
# The user that CoreDNS logs in as, and its role.
COREDNS = "system:coredns"


def containerd(instance: Instance) -> str:
    """Return the configuration of containerd 1.6 as TOML. JSON strings are TOML strings."""
    quoted = json.dumps
    return f"""\
version = 2
root = {quoted(str(instance.store))}
state = {quoted(str(instance.run / "containerd"))}
# Plugins that are not used would print warnings or write outside this cluster's directories.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.native",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = {quoted(str(instance.containerd_socket))}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = {quoted(PAUSE_IMAGE)}
# Lowering an oom_score_adj needs CAP_SYS_RESOURCE; without it runc fails to start a sandbox.
restrict_oom_score_adj = true
# Not /run/netns, which belongs to the machine.
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {quoted(str(CNI_PLUGINS))}
conf_dir = {quoted(str(instance.state / "cni"))}
"""


def cni(instance: Instance) -> str:
    """Return the pod network: a veth pair from each pod to the node, which routes between them.

    Unlike a bridge, this needs no bridge netfilter.
    """
    ipam = {
        "type": "host-local",
        "dataDir": str(instance.run / "addresses"),
        "ranges": [[{"subnet": str(instance.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}]
    return json.dumps({"cniVersion": "0.4.0", "name": "localkube", "plugins": plugins}, indent=2)


def kubelet(instance: Instance) -> str:
    signals = ["memory.available", "nodefs.available", "nodefs.inodesFree"]
    signals += ["imagefs.available", "imagefs.inodesFree"]
    return _yaml(
        "kubelet.config.k8s.io/v1beta1",
        "KubeletConfiguration",
        address=str(instance.node_ip),
        authentication={
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(instance.pki / "ca.crt")},
        },
        authorization={"mode": "Webhook"},
        tlsCertFile=str(instance.kubelet_keys.with_suffix(".crt")),
        tlsPrivateKeyFile=str(instance.kubelet_keys.with_suffix(".key")),
        containerRuntimeEndpoint=f"unix://{instance.containerd_socket}",
        cgroupDriver="cgroupfs",
        cgroupRoot=f"/{instance.node_name}/pods",
        clusterDomain="cluster.local",
        clusterDNS=[str(instance.control_ip)],
        resolvConf=str(instance.resolv_conf),
        podLogsDir=str(instance.state / "pod-logs"),
        volumePluginDir=str(instance.state / "volume-plugins"),
        maxPods=250,
        # kube-proxy uses nftables, so the kubelet's iptables chains are not needed.
        makeIPTablesUtilChains=False,
        failSwapOn=False,
        # Since 1.35, the kubelet needs this setting to start on cgroup version 1.
        failCgroupV1=False,
        # Pods may use the whole machine. Other software that fills the disk must not cause
        # evictions.
        evictionHard=dict.fromkeys(signals, "0%"),
        imageGCHighThresholdPercent=100,
        imageGCLowThresholdPercent=99,
        serializeImagePulls=False,
        configMapAndSecretChangeDetectionStrategy="Watch",
        # One node cannot overload its own API server. The defaults would queue the requests of many
        # pods.
        kubeAPIQPS=500,
        kubeAPIBurst=1000,
        eventRecordQPS=0,
    )


def proxy(instance: Instance) -> str:
    return _yaml(
        "kubeproxy.config.k8s.io/v1alpha1",
        "KubeProxyConfiguration",
        mode="nftables",
        clientConnection={"kubeconfig": str(instance.pki / "proxy.conf"), "qps": 100, "burst": 200},
        clusterCIDR=str(instance.pods),
        detectLocalMode="ClusterCIDR",
        hostnameOverride=instance.node_name,
        healthzBindAddress="127.0.0.1:10256",
        metricsBindAddress="127.0.0.1:10249",
        nodePortAddresses=[f"{instance.node_ip}/32"],
        # Zero leaves the machine's connection tracking limits unchanged.
        conntrack={
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        # A new Service is reachable at once; the default waits a second to collect changes.
        nftables={"minSyncPeriod": "0s", "syncPeriod": "30s"},
    )


def corefile(instance: Instance) -> str:
    """Return the configuration of CoreDNS without a cache.

    CoreDNS answers from memory anyway, and a cached NXDOMAIN would delay a pod that is starting.
    Every name outside the cluster gets NXDOMAIN at once, because the cluster cannot reach another
    DNS server.
    """
    return f"""\
cluster.local in-addr.arpa ip6.arpa {{
    bind {instance.node_ip}
    errors
    ready {instance.node_ip}:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {instance.pki / "coredns.conf"}
        pods verified
        ttl 1
    }}
    loadbalance
}}
. {{
    bind {instance.node_ip}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def resolv_conf(instance: Instance) -> str:
    """Return the file for pods with dnsPolicy Default; it replaces /etc/resolv.conf there."""
    return f"nameserver {instance.control_ip}\n"


def _rule(group: str, *resources: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["list", "watch"]}


def manifests() -> str:
    """Return the objects that the cluster itself needs, as JSON: the role of CoreDNS and its
    binding.
    """
    rbac = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": COREDNS},
        "rules": [
            _rule("", "namespaces", "pods", "services"),
            _rule("discovery.k8s.io", "endpointslices"),
        ],
    }
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": COREDNS},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": COREDNS},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": COREDNS}],
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]})


def _yaml(api_version: str, kind: str, **fields: Any) -> str:
    return yaml.safe_dump({"apiVersion": api_version, "kind": kind, **fields}, sort_keys=False)


def files(instance: Instance) -> dict[Path, str]:
    """Return the content of every configuration file of the node by its path."""
    state = instance.state
    control_plane = {state / "Corefile": corefile(instance), state / MANIFESTS: manifests()}
    return {
        **(control_plane if instance.node == 1 else {}),
        state / "containerd.toml": containerd(instance),
        state / "cni" / "10-localkube.conflist": cni(instance),
        state / "kubelet.yaml": kubelet(instance),
        state / "proxy.yaml": proxy(instance),
        instance.resolv_conf: resolv_conf(instance),
    }
