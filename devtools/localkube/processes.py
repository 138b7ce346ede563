"""The processes of a cluster: command lines, order and readiness. Pure functions."""

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

    needs: names of the processes that must be ready before it starts.
    ready: when it is ready. NOTIFY: it reports so by systemd's notification protocol
    (sd_notify(3)). EXIT: it has ended with status 0. An http:// or https:// URL: that answers 200.
    "": at once, since no process waits for it.
    """

    name: str
    argv: list[str]
    needs: tuple[str, ...] = ()
    ready: str = ""


def all_processes(instance: Instance, kube: Path, coredns: Path) -> list[Process]:
    """Every process comes after those that it needs. kube: the program that has all of Kubernetes's
    commands.
    """
    if instance.node != 1:
        return [
            containerd(instance),
            pause_image(instance),
            kubelet(instance, kube),
            proxy(instance, kube),
        ]
    return [
        etcd(instance, kube),
        containerd(instance),
        pause_image(instance),
        apiserver(instance, kube),
        cluster_objects(instance, kube),
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
    """containerd's client, in the namespace of the store that Kubernetes uses."""
    return ["ctr", f"--address={instance.containerd_socket}", "--namespace=k8s.io"]


def cluster_objects(instance: Instance, kube: Path) -> Process:
    """Creates the objects that the cluster itself needs."""
    argv = [str(kube), *kubectl_arguments(instance), "apply", "--server-side"]
    argv += [f"--filename={instance.state / MANIFESTS}"]
    return Process("cluster-objects", argv, needs=("apiserver",), ready=EXIT)


def kubectl_arguments(instance: Instance) -> list[str]:
    """Arguments of the `kube` program that make it kubectl for this cluster. The user's ~/.kube is
    neither read nor written.
    """
    cache = f"--cache-dir={instance.state / 'kubectl-cache'}"
    return ["kubectl", f"--kubeconfig={instance.kubeconfig}", cache]


def proxy(instance: Instance, kube: Path) -> Process:
    argv = [str(kube), "kube-proxy", f"--config={instance.state / 'proxy.yaml'}"]
    return Process("proxy", argv, needs=_api(instance))


def dns(instance: Instance, coredns: Path) -> Process:
    argv = [str(coredns), "-conf", str(instance.state / "Corefile")]
    return Process(
        "coredns", argv, needs=("cluster-objects",), ready=f"http://{instance.node_ip}:8181/ready"
    )


def etcd(instance: Instance, kube: Path) -> Process:
    # The loopback interface of the node's own network namespace: neither the machine nor a pod
    # reaches it.
    flags = [
        "--name=localkube",
        f"--data-dir={instance.state / 'etcd'}",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=localkube=http://127.0.0.1:2380",
        # Data survives the end of any process; after a power cut the cluster starts empty anyway.
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
        # It shares the server between many tenants; here it would only delay the start.
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
        f"--kubeconfig={instance.kubelet_keys.with_suffix('.conf')}",
        f"--root-dir={instance.state / 'kubelet'}",
        f"--hostname-override={instance.node_name}",
        f"--node-ip={instance.node_ip}",
    ]
    needs = (*_api(instance), "pause-image")
    return Process("kubelet", [str(kube), "kubelet", *flags], needs=needs)


def _api(instance: Instance) -> tuple[str, ...]:
    """What a process needs that calls the API; on the second node it is there before."""
    return ("apiserver",) if instance.node == 1 else ()


def controller_manager(instance: Instance, kube: Path) -> Process:
    flags = [
        f"--kubeconfig={instance.pki / 'controller-manager.conf'}",
        "--bind-address=127.0.0.1",
        f"--root-ca-file={instance.pki / 'ca.crt'}",
        f"--service-account-private-key-file={instance.pki / 'service-account.key'}",
        # Kubernetes has a role for each controller, and none for all in one.
        "--use-service-account-credentials=true",
        # There is only one instance: an election would only add waiting time.
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
