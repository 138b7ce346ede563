"""Runs that measure: installed for a while, and uninstalled whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hvdchart.errors import ClusterError
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
    try:
        helm.deploy(plan, cluster.namespace, context=context, helm=program)
    except KeyboardInterrupt:
        # There is no release when Helm was interrupted before it had begun.
        with suppress(ClusterError):
            helm.undeploy(name, cluster.namespace, context=context, helm=program)
        raise
    try:
        yield follow(cluster, name, warnings=True)
    finally:
        helm.undeploy(name, cluster.namespace, context=context, helm=program)
