"""The run that measures thread settings, in a cluster: installed, read, and taken away again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvdchart import helm as helm_module
from hvdchart.cluster import Cluster
from hvdchart.errors import RunFailedError
from hvdchart.logs import follow
from hvdchart.plan import Plan
from hvdchart.tune import Measured, Setting, described, result_in


def measure(
    cluster: Cluster,
    run: Plan,
    runs: Sequence[Setting],
    tell: Callable[[str], None],
    *,
    context: str | None = None,
    helm: str = "helm",
) -> list[tuple[int, float | None, str]]:
    """The result of each run in turn: its number, images/s or None, and the error.

    `tell` gets a line for each as it comes. Raises RunFailedError when there is none.
    """
    results, last = [], ""
    helm_module.deploy(run, cluster.namespace, context=context, helm=helm)
    try:
        for line in follow(cluster, run.spec.name, warnings=True):
            found = result_in(line.text)
            if found is None:
                last = f"{line.pod}: {line.text}"
                continue
            results.append(found)
            number, speed, error = found
            shown = Measured(runs[number], () if speed is None else (speed,), (error,))
            tell(f"{len(results)}/{len(runs)} {described(shown)}")
    finally:
        helm_module.undeploy(run.spec.name, cluster.namespace, context=context, helm=helm)
    if not results:
        raise RunFailedError(
            f"{run.spec.name} ended without a measurement; its last line: {last or 'none'}"
        )
    return results
