"""Runs that measure: installed for a while, and uninstalled however the measurement ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hvdchart.errors import ClusterError, HelmError
from hvdchart.plan.model import Plan
from hvdchart.run import helm
from hvdchart.run.cluster import Cluster
from hvdchart.run.helm_errors import BUSY
from hvdchart.run.logs import LogLine, follow


@contextmanager
def temporary_run(
    cluster: Cluster, plan: Plan, *, context: str | None, program: str
) -> Iterator[Iterator[LogLine]]:
    """Install a plan, yield the lines of its log until its run ends, and uninstall it."""
    name = plan.spec.name
    try:
        helm.deploy(plan, cluster.namespace, context=context, helm=program)
    except (KeyboardInterrupt, HelmError) as problem:
        # Helm may have created a part of the release. It has not if it ended before it began, and
        # a release that another command changes is not this one's.
        if BUSY not in str(problem):
            with suppress(ClusterError, HelmError):
                helm.undeploy(name, cluster.namespace, context=context, helm=program)
        raise
    try:
        yield follow(cluster, name, warnings=True)
    finally:
        helm.undeploy(name, cluster.namespace, context=context, helm=program)
