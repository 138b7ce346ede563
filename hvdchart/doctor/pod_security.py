"""The Pod Security Standards: which level admits a pod. Pure.

Source: Kubernetes documentation, "Pod Security Standards", and the checks of
k8s.io/pod-security-admission, which also say what each version of Kubernetes has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

Pod: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str | int, ...]
RESTRICTED = "restricted"
BASELINE = "baseline"
PRIVILEGED = "privileged"
# The strictest first.
LEVELS = (RESTRICTED, BASELINE, PRIVILEGED)
ENFORCE = "pod-security.kubernetes.io/enforce"
# The minor version of Kubernetes 1 whose standards the table has; older ones are in it from 29 on.
NEWEST = 37
# From this version on, a pod in a user namespace of its own may run as root.
_USER_NAMESPACES = 35
_EACH = "*"
_POD = ("",)
_CONTAINERS = ("containers.*.", "initContainers.*.")
_BOTH = (*_POD, *_CONTAINERS)
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


class Violation(NamedTuple):
    """A field of a pod that stricter levels do not allow: the level that it needs, and its path.

    The path begins in the pod's spec, or with `annotations`.
    """

    needs: str
    path: Path


@dataclass(frozen=True)
class _Rule:
    """Fields for which stricter levels than `needs` allow certain values only.

    `allows` takes a value, None for no value. `places` are the beginnings of their paths, and * is
    each item of a list. With `is_inherited`, a container without a value has that of its pod. Pods
    in a user namespace are free from a rule that `is_relaxed`. `since` and `before` are minor
    versions.
    """

    needs: str
    places: Sequence[str]
    field: str
    allows: Callable[[Any], bool]
    is_inherited: bool = False
    is_relaxed: bool = False
    since: int = 0
    before: int = NEWEST + 1000


def _one_of(*values: Any) -> Callable[[Any], bool]:
    """Allow these values, and no value."""
    return lambda value: value is None or value in values


def _has_allowed_source(volume: Mapping[str, Any]) -> bool:
    sources = {key for key, value in volume.items() if value is not None}
    return sources <= _VOLUME_FIELDS


_VOLUME_FIELDS = {
    "name",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
)
_SYSCTLS_32 = (*_SYSCTLS, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
_SYSCTLS_37 = (*_SYSCTLS_32, "net.ipv4.tcp_notsent_lowat", "net.ipv4.tcp_slow_start_after_idle")
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t")
SECURITY_CONTEXT = "securityContext"
_PROFILES = _one_of("RuntimeDefault", "Localhost")
_HANDLERS = (
    *(f"{probe}Probe" for probe in ("liveness", "readiness", "startup")),
    *(f"lifecycle.{moment}" for moment in ("postStart", "preStop")),
)
_RULES = (
    # What baseline and restricted do not allow.
    *(_Rule(PRIVILEGED, _POD, f"host{name}", _one_of(False)) for name in ("Network", "PID", "IPC")),
    _Rule(PRIVILEGED, _POD, "volumes.*.hostPath", _one_of()),
    _Rule(PRIVILEGED, _CONTAINERS, "ports.*.hostPort", _one_of(0)),
    _Rule(PRIVILEGED, _CONTAINERS, f"{SECURITY_CONTEXT}.privileged", _one_of(False)),
    _Rule(
        PRIVILEGED, _CONTAINERS, f"{SECURITY_CONTEXT}.capabilities.add.*", _one_of(*_CAPABILITIES)
    ),
    _Rule(
        PRIVILEGED,
        _CONTAINERS,
        f"{SECURITY_CONTEXT}.procMount",
        _one_of("Default"),
        is_relaxed=True,
    ),
    _Rule(PRIVILEGED, _BOTH, f"{SECURITY_CONTEXT}.appArmorProfile.type", _PROFILES),
    _Rule(PRIVILEGED, _BOTH, f"{SECURITY_CONTEXT}.seccompProfile.type", _PROFILES),
    _Rule(PRIVILEGED, _BOTH, f"{SECURITY_CONTEXT}.windowsOptions.hostProcess", _one_of(False)),
    _Rule(PRIVILEGED, _BOTH, f"{SECURITY_CONTEXT}.seLinuxOptions.user", _one_of("")),
    _Rule(PRIVILEGED, _BOTH, f"{SECURITY_CONTEXT}.seLinuxOptions.role", _one_of("")),
    _Rule(
        PRIVILEGED,
        _BOTH,
        f"{SECURITY_CONTEXT}.seLinuxOptions.type",
        _one_of(*_SELINUX_TYPES),
        before=31,
    ),
    _Rule(
        PRIVILEGED,
        _BOTH,
        f"{SECURITY_CONTEXT}.seLinuxOptions.type",
        _one_of(*_SELINUX_TYPES, "container_engine_t"),
        since=31,
    ),
    _Rule(PRIVILEGED, _POD, f"{SECURITY_CONTEXT}.sysctls.*.name", _one_of(*_SYSCTLS), before=32),
    _Rule(
        PRIVILEGED,
        _POD,
        f"{SECURITY_CONTEXT}.sysctls.*.name",
        _one_of(*_SYSCTLS_32),
        since=32,
        before=37,
    ),
    _Rule(PRIVILEGED, _POD, f"{SECURITY_CONTEXT}.sysctls.*.name", _one_of(*_SYSCTLS_37), since=37),
    *(
        _Rule(PRIVILEGED, _CONTAINERS, f"{handler}.{kind}.host", _one_of(""), since=34)
        for handler in _HANDLERS
        for kind in ("httpGet", "tcpSocket")
    ),
    # What restricted does not allow beyond that.
    _Rule(BASELINE, _POD, "volumes.*", _has_allowed_source),
    _Rule(
        BASELINE,
        _CONTAINERS,
        f"{SECURITY_CONTEXT}.allowPrivilegeEscalation",
        lambda value: value is False,
    ),
    _Rule(
        BASELINE,
        _CONTAINERS,
        f"{SECURITY_CONTEXT}.capabilities.drop",
        lambda dropped: "ALL" in (dropped or ()),
    ),
    _Rule(
        BASELINE, _CONTAINERS, f"{SECURITY_CONTEXT}.capabilities.add.*", _one_of("NET_BIND_SERVICE")
    ),
    _Rule(BASELINE, _CONTAINERS, f"{SECURITY_CONTEXT}.procMount", _one_of("Default")),
    _Rule(BASELINE, _POD, f"{SECURITY_CONTEXT}.runAsNonRoot", _one_of(True), is_relaxed=True),
    _Rule(
        BASELINE,
        _CONTAINERS,
        f"{SECURITY_CONTEXT}.runAsNonRoot",
        lambda value: value is True,
        is_inherited=True,
        is_relaxed=True,
    ),
    _Rule(
        BASELINE, _BOTH, f"{SECURITY_CONTEXT}.runAsUser", lambda value: value != 0, is_relaxed=True
    ),
    _Rule(
        BASELINE,
        _CONTAINERS,
        f"{SECURITY_CONTEXT}.seccompProfile.type",
        lambda value: value is not None and _PROFILES(value),
        is_inherited=True,
    ),
)


def policy_version(labels: Mapping[str, str], server: str) -> int:
    """Return the minor version of the standards that a namespace with these labels enforces.

    `server` is the version of Kubernetes, such as v1.34.1.
    """
    versions = (labels.get(f"{ENFORCE}-version", ""), server)
    matches = (re.match(r"v?1\.(\d+)", version) for version in versions)
    return min([int(match[1]) for match in matches if match], default=NEWEST)


def find_violations(pod: Pod, version: int = NEWEST) -> Iterator[Violation]:
    """Yield the fields of a pod that need a less strict level than `restricted`.

    `pod` is a pod, or the template of one. `version` is the minor version of the standards.
    """
    spec = pod["spec"]
    is_own_user_namespace = spec.get("hostUsers") is False and version >= _USER_NAMESPACES
    for rule in _RULES:
        if not rule.since <= version < rule.before or (rule.is_relaxed and is_own_user_namespace):
            continue
        steps = rule.field.split(".")
        of_pod = next(_values(spec, steps))[1] if rule.is_inherited else None
        for place in rule.places:
            for path, value in _values(spec, [*place.split(".")[:-1], *steps]):
                if not rule.allows(of_pod if value is None else value):
                    yield Violation(rule.needs, path)
    for name, profile in ((pod.get("metadata") or {}).get("annotations") or {}).items():
        allowed = profile in ("", "runtime/default") or str(profile).startswith("localhost/")
        if name.startswith(_APP_ARMOR) and not allowed:
            yield Violation(PRIVILEGED, ("annotations", name))


def _values(node: Any, steps: Sequence[str], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the value of each match, None for a field without a value."""
    if not steps:
        yield above, node
        return
    step, *rest = steps
    if step == _EACH:
        for index, item in enumerate(node or ()):
            yield from _values(item, rest, (*above, index))
    else:
        yield from _values((node or {}).get(step), rest, (*above, step))
