"""Pure: the processes of one cluster, what each waits for, and how it is known to be ready."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from devtools.localkube.config import MANIFESTS, PAUSE_ARCHIVE
from devtools.localkube.instance import Instance

NOTIFY = "notify"
EXIT = "exit"


@dataclass(frozen=True)
class Process:
    """One program that the node runs.

    needs: names of processes that must be ready before it starts.
    ready: how it is known to be ready: NOTIFY when the program reports by systemd's notification
    protocol (sd_notify(3)), EXIT when it does one thing and ends with status 0, an http:// or
    https:// URL that answers 200, or "" when nothing waits for it.
    """

    name: str
    argv: list[str]
    needs: tuple[str, ...] = ()
    ready: str = ""


# Controllers for things that a one-node cluster without a cloud never has.
UNUSED_CONTROLLERS = (
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "horizontal-pod-autoscaler-controller",
    "node-ipam-controller",
    "token-cleaner-controller",
    "ttl-controller",
)


def all_processes(instance: Instance, kube: Path, coredns: Path) -> list[Process]:
    """In the order of their needs. `kube` is the many-named Kubernetes program."""
    return [
        etcd(instance, kube),
        containerd(instance),
        pause_image(instance),
        apiserver(instance, kube),
        rights(instance, kube),
        kubelet(instance, kube),
        controller_manager(instance, kube),
        scheduler(instance, kube),
        proxy(instance, kube),
        dns(instance, coredns),
    ]


def containerd(instance: Instance) -> Process:
    argv = ["containerd", f"--config={instance.state / 'containerd.toml'}"]
    return Process("containerd", argv, ready=NOTIFY)


def pause_image(instance: Instance) -> Process:
    """The image that every pod's sandbox is made from."""
    archive = str(instance.state / PAUSE_ARCHIVE)
    argv = [*ctr_command(instance), "images", "import", archive]
    return Process("pause-image", argv, needs=("containerd",), ready=EXIT)


def ctr_command(instance: Instance) -> list[str]:
    """containerd's own client, in the part of the store that Kubernetes sees."""
    return ["ctr", f"--address={instance.containerd_socket}", "--namespace=k8s.io"]


def rights(instance: Instance, kube: Path) -> Process:
    """Puts the cluster's own objects there."""
    argv = [str(kube), *kubectl_arguments(instance), "apply", "--server-side"]
    argv += [f"--filename={instance.state / MANIFESTS}"]
    return Process("rights", argv, needs=("apiserver",), ready=EXIT)


def kubectl_arguments(instance: Instance) -> list[str]:
    """For the many-named program; nothing of the user's ~/.kube is read or written."""
    cache = f"--cache-dir={instance.state / 'kubectl-cache'}"
    return ["kubectl", f"--kubeconfig={instance.kubeconfig}", cache]


def proxy(instance: Instance, kube: Path) -> Process:
    argv = [str(kube), "kube-proxy", f"--config={instance.state / 'proxy.yaml'}"]
    return Process("proxy", argv, needs=("apiserver",))


def dns(instance: Instance, coredns: Path) -> Process:
    argv = [str(coredns), "-conf", str(instance.state / "Corefile")]
    return Process(
        "coredns", argv, needs=("rights",), ready=f"http://{instance.node_ip}:8181/ready"
    )


def etcd(instance: Instance, kube: Path) -> Process:
    # The node has its own network namespace, so its loopback is no one else's: not the machine's,
    # not a pod's.
    flags = [
        "--name=localkube",
        f"--data-dir={instance.state / 'etcd'}",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=localkube=http://127.0.0.1:2380",
        # Survives the death of any process; after a power cut the cluster is made anew anyway.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    return Process("etcd", [str(kube), "etcd", *flags], ready=NOTIFY)


def apiserver(instance: Instance, kube: Path) -> Process:
    pki = instance.pki
    flags = [
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
        # Fair sharing between many tenants; here it would only delay the start.
        "--enable-priority-and-fairness=false",
        "--profiling=false",
    ]
    return Process(
        "apiserver",
        [str(kube), "kube-apiserver", *flags],
        needs=("etcd",),
        ready=f"{instance.api_url}/readyz",
    )


def kubelet(instance: Instance, kube: Path) -> Process:
    flags = [
        f"--config={instance.state / 'kubelet.yaml'}",
        f"--kubeconfig={instance.pki / 'kubelet.conf'}",
        f"--root-dir={instance.state / 'kubelet'}",
        f"--hostname-override={instance.node_name}",
        f"--node-ip={instance.node_ip}",
    ]
    needs = ("apiserver", "pause-image")
    return Process("kubelet", [str(kube), "kubelet", *flags], needs=needs)


def controller_manager(instance: Instance, kube: Path) -> Process:
    controllers = ",".join(["*", *(f"-{name}" for name in UNUSED_CONTROLLERS)])
    flags = [
        f"--kubeconfig={instance.pki / 'controller-manager.conf'}",
        "--bind-address=127.0.0.1",
        f"--controllers={controllers}",
        f"--root-ca-file={instance.pki / 'ca.crt'}",
        f"--service-account-private-key-file={instance.pki / 'service-account.key'}",
        # Each controller acts with its own rights: those of all in one would need a role of our
        # own.
        "--use-service-account-credentials=true",
        # There is one of it: an election would only cost its waiting times.
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
    ]
    return Process(
        "controller-manager", [str(kube), "kube-controller-manager", *flags], needs=("apiserver",)
    )


def scheduler(instance: Instance, kube: Path) -> Process:
    flags = [
        f"--kubeconfig={instance.pki / 'scheduler.conf'}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
    ]
    return Process("scheduler", [str(kube), "kube-scheduler", *flags], needs=("apiserver",))
