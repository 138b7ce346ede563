"""Facts that the chart derives from its values, for callers that do not render it.

The rules are those of horovod.prepareNames, horovod.prepareNetwork, horovod.prepareGang and
master/role.yaml in the chart's templates. tests/chart/test_facts.py compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_in_kueue(values: Mapping[str, Any]) -> bool:
    """Return whether Kueue admits a run with these values: with Volcano, queueName is Volcano's."""
    return bool(values.get("queueName") and values.get("gang") != "Volcano")


def has_policy(values: Mapping[str, Any]) -> bool:
    """Return whether a release with these values has a NetworkPolicy for its pods."""
    enabled = (values.get("networkPolicy") or {}).get("enabled")
    return bool(not values.get("hostNetwork") if enabled is None else enabled)


def has_role(values: Mapping[str, Any]) -> bool:
    """Return whether a release with these values has a Role for its master's ServiceAccount."""
    account = values.get("serviceAccount") or {}
    has_account = account.get("create") is not False or bool(account.get("name"))
    return has_account and (values.get("rbac") or {}).get("create") is not False
