"""Values that ask for more or less of Pod Security, each with the level that admits it."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]
_ROOT: Values = {"runAsUser": 0, "runAsNonRoot": False}
_OWN_USERS: Values = {key: {"podSpec": {"hostUsers": False}} for key in ("worker", "master")}
_ADDED: Values = {"name": "added", "image": "registry.example/added:1"}
_DROPPED: Values = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_OF_HOST: Values = {"httpGet": {"host": "192.0.2.1", "port": 80}}
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/worker"


def _volumes(*sources: Values) -> Values:
    return {"volumes": [{"name": f"v{n}", **source} for n, source in enumerate(sources)]}


def _pod(**settings: Any) -> Values:
    return {"podSecurityContext": settings}


def _containers(**settings: Any) -> Values:
    return {"securityContext": settings}


def _sysctl(name: str, value: str) -> Values:
    return _pod(sysctls=[{"name": name, "value": value}])


def _capabilities(**settings: Any) -> Values:
    return _containers(capabilities=settings)


_CLAIM: Values = {
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
}
# Those of the newest version of the standards.
SECURITY: dict[str, tuple[Values, str]] = {
    "nothing": ({}, "restricted"),
    "user of the image": (_pod(runAsUser=None), "restricted"),
    "user that may be root": (_pod(runAsNonRoot=False), "baseline"),
    "root": (_pod(**_ROOT), "baseline"),
    "root of containers": (_containers(runAsUser=0), "baseline"),
    "containers that may be root": (_containers(runAsNonRoot=False), "baseline"),
    "root in user namespaces": (_pod(**_ROOT) | _OWN_USERS, "restricted"),
    "root in a user namespace of the workers": (
        _pod(**_ROOT) | {"worker": _OWN_USERS["worker"]},
        "baseline",
    ),
    "all system calls": (_pod(seccompProfile={"type": "Unconfined"}), "privileged"),
    "all system calls of containers": (
        _containers(seccompProfile={"type": "Unconfined"}),
        "privileged",
    ),
    "system calls by default": (_pod(seccompProfile=None), "baseline"),
    "system calls of a file": (
        _pod(seccompProfile={"type": "Localhost", "localhostProfile": "a.json"}),
        "restricted",
    ),
    "system calls by containers": (
        _pod(seccompProfile=None) | _containers(seccompProfile={"type": "RuntimeDefault"}),
        "restricted",
    ),
    "no AppArmor": (_pod(appArmorProfile={"type": "Unconfined"}), "privileged"),
    "AppArmor": (_containers(appArmorProfile={"type": "RuntimeDefault"}), "restricted"),
    "no AppArmor by annotation": (
        {"worker": {"podAnnotations": {_APP_ARMOR: "unconfined"}}},
        "privileged",
    ),
    "AppArmor by annotation": (
        {"worker": {"podAnnotations": {_APP_ARMOR: "runtime/default"}}},
        "restricted",
    ),
    "SELinux level": (_pod(seLinuxOptions={"level": "s0:c1,c2"}), "restricted"),
    "SELinux type": (_pod(seLinuxOptions={"type": "container_engine_t"}), "restricted"),
    "other SELinux type": (_containers(seLinuxOptions={"type": "spc_t"}), "privileged"),
    "SELinux user": (_pod(seLinuxOptions={"user": "u"}), "privileged"),
    "SELinux role": (_pod(seLinuxOptions={"role": "r"}), "privileged"),
    "safe sysctl": (_sysctl("net.ipv4.tcp_keepalive_time", "60"), "restricted"),
    "newer sysctl": (_sysctl("net.ipv4.tcp_rmem", "4096 87380 6291456"), "restricted"),
    "newest sysctl": (_sysctl("net.ipv4.tcp_notsent_lowat", "16384"), "restricted"),
    "unsafe sysctl": (_sysctl("kernel.msgmax", "65536"), "privileged"),
    "privileged": (_containers(privileged=True, allowPrivilegeEscalation=True), "privileged"),
    "escalation": (_containers(allowPrivilegeEscalation=True), "baseline"),
    "proc": (_containers(procMount="Unmasked") | _OWN_USERS, "baseline"),
    "capabilities of the image": (_containers(capabilities=None), "baseline"),
    "some capabilities": (_capabilities(drop=["NET_RAW"]), "baseline"),
    "low ports": (_capabilities(add=["NET_BIND_SERVICE"]), "restricted"),
    "capability by default": (_capabilities(add=["CHOWN"]), "baseline"),
    "capability beyond": (_capabilities(add=["NET_ADMIN"]), "privileged"),
    "capability of workers": (
        _pod(**_ROOT) | {"worker": {"capabilities": ["IPC_LOCK"]}},
        "privileged",
    ),
    "low ports of workers": (
        _pod(**_ROOT) | {"worker": {"capabilities": ["NET_BIND_SERVICE"]}},
        "baseline",
    ),
    "low ports of workers in user namespaces": (
        {
            **_pod(**_ROOT),
            **_OWN_USERS,
            "worker": {**_OWN_USERS["worker"], "capabilities": ["NET_BIND_SERVICE"]},
        },
        "restricted",
    ),
    "folder of the node": (_volumes({"hostPath": {"path": "/mnt"}}), "privileged"),
    "folder of the node as /tmp": (
        {
            "volumes": [{"name": "v", "hostPath": {"path": "/mnt"}}],
            "volumeMounts": [{"name": "v", "mountPath": "/tmp"}],
        },
        "privileged",
    ),
    "NFS": (_volumes({"nfs": {"server": "host.example", "path": "/a"}}), "baseline"),
    "iSCSI": (
        _volumes({"iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.a:b", "lun": 0}}),
        "baseline",
    ),
    "volumes that all may have": (
        _volumes(
            {"persistentVolumeClaim": {"claimName": "a"}},
            {"configMap": {"name": "a"}},
            {"secret": {"secretName": "a"}},
            {"emptyDir": {}},
            {"csi": {"driver": "csi.example"}},
            {"ephemeral": {"volumeClaimTemplate": _CLAIM}},
            {"projected": {"sources": [{"secret": {"name": "a"}}]}},
            {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ),
        "restricted",
    ),
    "NFS of a group": (
        {
            "workerGroups": [
                {"name": "a"},
                {"name": "b", **_volumes({"nfs": {"server": "a", "path": "/b"}})},
            ]
        },
        "baseline",
    ),
    "init container": ({"worker": {"initContainers": [_ADDED]}}, "restricted"),
    "init container with a context of its own": (
        {"worker": {"initContainers": [{**_ADDED, "securityContext": _DROPPED}]}},
        "restricted",
    ),
    "init container with an empty context": (
        {"worker": {"initContainers": [{**_ADDED, "securityContext": {}}]}},
        "baseline",
    ),
    "privileged init container": (
        {"master": {"initContainers": [{**_ADDED, "securityContext": {"privileged": True}}]}},
        "privileged",
    ),
    "container of root": (
        {
            "worker": {
                "extraContainers": [{**_ADDED, "securityContext": {**_DROPPED, "runAsUser": 0}}]
            }
        },
        "baseline",
    ),
    "port of the node": (
        {
            "worker": {
                "extraContainers": [{**_ADDED, "ports": [{"containerPort": 80, "hostPort": 80}]}]
            }
        },
        "privileged",
    ),
    "network of the node": ({"hostNetwork": True}, "privileged"),
    "processes of the node": ({"worker": {"podSpec": {"hostPID": True}}}, "privileged"),
    "memory of the node": ({"master": {"podSpec": {"hostIPC": True}}}, "privileged"),
    "processes of the pod": (
        {"worker": {"podSpec": {"shareProcessNamespace": True}}},
        "restricted",
    ),
    "processes of the node in one group": (
        {"workerGroups": [{"name": "a", "podSpec": {"hostPID": True}}, {"name": "b"}]},
        "privileged",
    ),
    "processes of the node in no group": (
        {
            "worker": {"podSpec": {"hostPID": True}},
            "workerGroups": [
                {"name": "a", "podSpec": None},
                {"name": "b", "podSpec": {"hostPID": False}},
            ],
        },
        "restricted",
    ),
    "probe": (
        {"worker": {"container": {"livenessProbe": {"httpGet": {"port": 80}}}}},
        "restricted",
    ),
    "probe of another host": (
        {"worker": {"container": {"livenessProbe": _OF_HOST}}},
        "privileged",
    ),
    "handler of another host": (
        {"master": {"container": {"lifecycle": {"preStop": _OF_HOST}}}},
        "privileged",
    ),
    "object that is no pod": (
        {"extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}]},
        "restricted",
    ),
    "pod among the objects": (
        {
            "extraObjects": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "a"},
                    "spec": {"hostPID": True, "containers": [_ADDED]},
                }
            ]
        },
        "privileged",
    ),
    "workload among the objects": (
        {
            "extraObjects": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "a"},
                    "spec": {
                        "selector": {"matchLabels": {"a": "b"}},
                        "template": {
                            "metadata": {"labels": {"a": "b"}},
                            "spec": {"containers": [_ADDED]},
                        },
                    },
                }
            ]
        },
        "baseline",
    ),
}
