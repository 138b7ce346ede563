"""The processes of a cluster: command lines, order and readiness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from devtools.localkube.config import MANIFESTS, PAUSE_ARCHIVE
from devtools.localkube.instance import Instance
from devtools.toolchain.tools import KUBERNETES, module_version

NOTIFY = "notify"
EXIT = "exit"


@dataclass(frozen=True)
class Process:
    """One program that the node runs.

    needs: names of the processes that must be ready before it starts.
    ready: when it is ready. NOTIFY: it reports so by systemd's notification protocol
    (sd_notify(3)). EXIT: it exits with status 0. An http:// or https:// URL: the URL responds with
    status 200. "": at once, because no process waits for it.
    """

    name: str
    argv: list[str]
    needs: tuple[str, ...] = ()
    ready: str = ""


# The first minor release in which the scheduler has groups of pods. Their API and feature gate are
# off there.
POD_GROUPS_MINOR_RELEASE = 37
POD_GROUPS = "--feature-gates=GenericWorkload=true"


def has_pod_groups() -> bool:
    """Return whether the cluster's release has groups of pods for its own scheduler."""
    return int(module_version("kube", KUBERNETES).split(".")[1]) >= POD_GROUPS_MINOR_RELEASE


def all_processes(instance: Instance, kube: Path, coredns: Path) -> list[Process]:
    """Return every process, after those that it needs; `kube` has all of Kubernetes's commands."""
    if instance.node > 1:
        # Another node has the API server.
        return [*_containers(instance), *_node(instance, kube, needs=())]
    state = instance.state
    gates = [POD_GROUPS] if has_pod_groups() else []
    apis = ["--runtime-config=scheduling.k8s.io/v1beta1=true"] if gates else []
    controllers = [
        f"--root-ca-file={instance.pki}/ca.crt",
        f"--service-account-private-key-file={instance.pki}/service-account.key",
        # Kubernetes has a role for each controller, but no role for all of them in one.
        "--use-service-account-credentials=true",
    ]
    apply = ["apply", "--server-side", f"--filename={state / MANIFESTS}"]
    return [
        Process("etcd", [str(kube), "etcd", *_etcd_flags(instance)], ready=NOTIFY),
        *_containers(instance),
        Process(
            "apiserver",
            [str(kube), "kube-apiserver", *_apiserver_flags(instance), *gates, *apis],
            needs=("etcd",),
            ready=instance.api_ready_url,
        ),
        # The objects that the cluster itself needs.
        Process(
            "cluster-objects",
            [str(kube), *kubectl_arguments(instance), *apply],
            needs=("apiserver",),
            ready=EXIT,
        ),
        *_node(instance, kube, needs=("apiserver",)),
        _client(instance, kube, "controller-manager", *controllers, *gates),
        _client(instance, kube, "scheduler", *gates),
        Process(
            "coredns",
            [str(coredns), "-conf", f"{state}/Corefile"],
            needs=("cluster-objects",),
            ready=instance.dns_ready_url,
        ),
    ]


def _containers(instance: Instance) -> list[Process]:
    """Return what runs containers."""
    state = instance.state
    return [
        Process("containerd", ["containerd", f"--config={state}/containerd.toml"], ready=NOTIFY),
        # The image of every pod's sandbox.
        Process(
            "pause-image",
            [*ctr_command(instance), "images", "import", f"{state}/{PAUSE_ARCHIVE}"],
            needs=("containerd",),
            ready=EXIT,
        ),
    ]


def _node(instance: Instance, kube: Path, needs: tuple[str, ...]) -> list[Process]:
    """Return the processes of a node, which need these others."""
    flags = _kubelet_flags(instance)
    proxy = ["kube-proxy", f"--config={instance.state}/proxy.yaml"]
    return [
        Process("kubelet", [str(kube), "kubelet", *flags], needs=(*needs, "pause-image")),
        Process("proxy", [str(kube), *proxy], needs=needs),
    ]


def ctr_command(instance: Instance) -> list[str]:
    """Return the command of containerd's client, in the namespace of the store that Kubernetes
    uses.
    """
    return ["ctr", f"--address={instance.containerd_socket}", "--namespace=k8s.io"]


def kubectl_arguments(instance: Instance) -> list[str]:
    """Return the arguments that make `kube` kubectl for this cluster; it neither reads nor writes
    ~/.kube.
    """
    cache = f"--cache-dir={instance.state / 'kubectl-cache'}"
    return ["kubectl", f"--kubeconfig={instance.kubeconfig}", cache]


def _client(instance: Instance, kube: Path, name: str, *flags: str) -> Process:
    """Return a component of the control plane that only sends requests to the API server."""
    argv = [
        str(kube),
        f"kube-{name}",
        f"--kubeconfig={instance.pki}/{name}.conf",
        *flags,
        "--bind-address=127.0.0.1",
        # There is only one instance: an election would only add waiting time.
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
    ]
    return Process(name, argv, needs=("apiserver",))


def _etcd_flags(instance: Instance) -> list[str]:
    # The loopback interface of the node's own network namespace: the machine and pods cannot reach
    # it.
    clients = "http://127.0.0.1:2379"
    peers = "http://127.0.0.1:2380"
    return [
        "--name=localkube",
        f"--data-dir={instance.state / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=localkube={peers}",
        # Data survives the end of any process. After a power cut the cluster starts empty anyway.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver_flags(instance: Instance) -> list[str]:
    pki = instance.pki
    return [
        f"--advertise-address={instance.node_ip}",
        f"--bind-address={instance.node_ip}",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--service-cluster-ip-range={instance.services}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-account.crt'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        # This feature shares the server between many tenants. Here it would only delay the start.
        "--enable-priority-and-fairness=false",
        "--profiling=false",
    ]


def _kubelet_flags(instance: Instance) -> list[str]:
    return [
        f"--config={instance.state / 'kubelet.yaml'}",
        f"--kubeconfig={instance.kubelet_keys.with_suffix('.conf')}",
        f"--root-dir={instance.state / 'kubelet'}",
        f"--hostname-override={instance.node_name}",
        f"--node-ip={instance.node_ip}",
    ]
