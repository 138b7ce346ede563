"""Runs that measure: installed for a while, and uninstalled whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hvdchart.plan.model import Plan
from hvdchart.run import helm
from hvdchart.run.cluster import Cluster
from hvdchart.run.logs import LogLine, follow


@contextmanager
def temporary_run(
    cluster: Cluster, plan: Plan, *, context: str | None, program: str
) -> Iterator[Iterator[LogLine]]:
    """Install a plan, yield the lines of its log until its run ends, and uninstall it."""
    name = plan.spec.name
    helm.deploy(plan, cluster.namespace, context=context, helm=program)
    try:
        yield follow(cluster, name, warnings=True)
    finally:
        helm.undeploy(name, cluster.namespace, context=context, helm=program)
