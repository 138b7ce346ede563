"""The rights that a user needs in a namespace, and which of them are missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from hvdchart.chart_facts import has_policy, has_role, is_in_kueue
from hvdchart.doctor.findings import Finding

Values: TypeAlias = Mapping[str, Any]


class Right(NamedTuple):
    """A verb on a resource of an API group; the core group is empty."""

    group: str
    resource: str
    verb: str


_Table: TypeAlias = tuple[tuple[str, str, tuple[str, ...]], ...]
"""Groups of the API, resources and their verbs."""
_CHANGE = ("get", "create", "patch", "delete")
_RBAC = "rbac.authorization.k8s.io"
_NETWORK = "networking.k8s.io"
# The rights for Helm and the chart's objects.
_DEPLOY: _Table = (
    ("", "secrets", ("list", "update", *_CHANGE)),
    ("", "configmaps", ("list", *_CHANGE)),
    ("", "services", _CHANGE),
    ("", "serviceaccounts", _CHANGE),
    ("apps", "statefulsets", ("list", *_CHANGE)),
    ("batch", "jobs", ("list", "watch", *_CHANGE)),
    (_NETWORK, "networkpolicies", _CHANGE),
)
# The rights for the master's Role. A user may create a Role only with all rights that it grants:
# the last ones are those of the master (templates/master/role.yaml).
_ROLE: _Table = (
    (_RBAC, "roles", _CHANGE),
    (_RBAC, "rolebindings", _CHANGE),
    ("discovery.k8s.io", "endpointslices", ("list", "watch")),
    ("", "pods", ("list", "delete")),
    ("", "events", ("create", "list")),
    ("apps", "statefulsets/scale", ("get", "patch")),
)
# Further objects that the chart creates if a value is true.
_OPTIONAL_OBJECTS = {
    ("tensorboard", "enabled"): ("apps", "deployments"),
    ("podDisruptionBudget", "enabled"): ("policy", "poddisruptionbudgets"),
    ("metrics", "podMonitor"): ("monitoring.coreos.com", "podmonitors"),
    ("metrics", "rules"): ("monitoring.coreos.com", "prometheusrules"),
}
_FOLLOW = (
    ("", "pods", ("list", "watch")),
    ("", "pods/log", ("get",)),
    ("", "events", ("list", "watch")),
    ("", "configmaps", ("get",)),
    ("apps", "statefulsets", ("list",)),
    ("batch", "jobs", ("list", "watch")),
)
_ENTER = (("", "pods/exec", ("create",)), ("", "pods/portforward", ("create",)))
TO_DEPLOY = "rights to deploy"
TO_FOLLOW = "rights to follow a run"
_OPTIONAL = "rights to enter pods"
PURPOSES = {TO_DEPLOY: _DEPLOY, TO_FOLLOW: _FOLLOW, _OPTIONAL: _ENTER}


def needed_rights(purpose: str, values: Values | None) -> Iterator[Right]:
    """Yield the rights for a purpose, including those for objects that a spec's values enable."""
    yield from _rights(PURPOSES[purpose])
    if purpose != TO_DEPLOY:
        return
    chosen = values or {}
    for (key, switch), (group, resource) in _OPTIONAL_OBJECTS.items():
        if (chosen.get(key) or {}).get(switch):
            yield from (Right(group, resource, verb) for verb in _CHANGE)
    if has_role(chosen):
        yield from _rights(_ROLE)
        if has_policy(chosen) and not is_in_kueue(chosen):
            # `helm test` probes the NetworkPolicy, and removes the label of its pod for that: this
            # is the condition of templates/master/role.yaml.
            yield Right("", "pods", "patch")


def _rights(table: _Table) -> Iterator[Right]:
    """Yield the rights of a table, one for each verb."""
    for group, resource, verbs in table:
        yield from (Right(group, resource, verb) for verb in verbs)


def examine_rights(
    namespace: str, values: Values | None, may: Callable[[str, str, str], bool]
) -> Iterator[Finding]:
    """Yield a finding for each purpose; `may` asks the API server about one right."""
    asked = cache(may)
    for purpose in PURPOSES:
        rights = list(dict.fromkeys(needed_rights(purpose, values)))
        missing = [right for right in rights if not asked(*right)]
        if not missing:
            yield Finding(purpose, "ok", f"all {len(rights)} in namespace {namespace}")
            continue
        text = f"missing in namespace {namespace}: {_list(missing)}"
        if purpose == _OPTIONAL:
            remedy = "exec, stack, top, timeline and tensorboard need them"
            yield Finding(purpose, "unknown", text, remedy)
        else:
            remedy = (
                "ask for a Role with them, such as the ClusterRole `admin` has: kubectl create "
                f"rolebinding NAME -n {namespace} --clusterrole=admin --user=YOU"
            )
            yield Finding(purpose, "problem", text, remedy)


def _list(rights: list[Right]) -> str:
    """Format rights: create, patch roles.rbac.authorization.k8s.io; get pods."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.resource), []).append(right.verb)
    parts = []
    for (group, resource), names in verbs.items():
        full_name = f"{resource}.{group}" if group else resource
        parts.append(f"{', '.join(names)} {full_name}")
    return "; ".join(parts)
