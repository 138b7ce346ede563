"""The run that measures thread settings, in a cluster: installed, read, and taken away again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.run import helm as helm_module
from hvdchart.run.cluster import Cluster
from hvdchart.run.logs import follow
from hvdchart.tune.grid import (
    Measured,
    Search,
    Setting,
    collected,
    described,
    result_in,
    rivals_of,
    runs_of,
    tuning_plan,
)


@dataclass(frozen=True)
class Bench:
    """What measures a setting: a command for the ranks of a plan's workers.

    `confirmations`: turns of the plan's own setting with its rivals, after the first `repeats`.
    """

    plan: Plan
    command: Sequence[str]
    workers: int
    repeats: int
    confirmations: int


def search(
    cluster: Cluster,
    bench: Bench,
    settings: Sequence[Setting],
    tell: Callable[[str], None],
    *,
    context: str | None = None,
    helm: str = "helm",
) -> Search:
    """Measure all settings, then those ahead of the plan's own, `settings[0]`, once more beside it.

    `tell` gets a line for each run. Raises RunFailedError when no run gave a speed.
    """

    def measured(tried: Sequence[Setting], repeats: int) -> list[Measured]:
        runs = runs_of(tried, repeats)
        run = tuning_plan(bench.plan, runs, bench.command, bench.workers)
        results = _measure(cluster, run, runs, tell, context=context, helm=helm)
        return collected(tried, results)

    first = measured(settings, bench.repeats)
    rivals = rivals_of(first)
    if not rivals:
        return Search(first, first[:1])
    tell(f"{len(rivals)} ahead of the plan: once more, in turns with it")
    return Search(first, measured([settings[0], *rivals], bench.confirmations))


def _measure(
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
