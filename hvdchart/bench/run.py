"""Installs the run that measures, reads its figures and uninstalls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hvdchart.bench.scaling import (
    Measurement,
    check_side_by_side,
    parse_machine,
    parse_measurement,
    worker_pods,
)
from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.quantity import pluralize
from hvdchart.run.cluster import Cluster
from hvdchart.run.helm import Helm
from hvdchart.run.release import Object
from hvdchart.run.temporary import temporary_run


@dataclass
class BenchOutput:
    """What the run printed: the machine of each rank's host, and the measurements in order."""

    machines: dict[str, Object] = field(default_factory=dict)
    measured: list[Measurement] = field(default_factory=list)


def measure(
    cluster: Cluster,
    plan: Plan,
    number: int,
    report: Callable[[str], None],
    helm: Helm,
) -> BenchOutput:
    """Measure `number` times in the run of a plan of `bench_plan`, with a remark for each.

    Raises ClusterError where a release has the run's name, and RunFailedError when a measurement
    failed or when the pods were not the same throughout.
    """
    name = plan.spec.name
    output, last = BenchOutput(), ""
    with temporary_run(cluster, plan, helm) as lines:
        for line in lines:
            last = f"{line.pod}: {line.text}"
            machine = parse_machine(line.text)
            if machine:
                output.machines.setdefault(str(machine["host"]), machine)
            if not line.text.startswith("BENCH {"):
                continue
            made = parse_measurement(line.text, worker_pods(cluster.release(name).pods))
            output.measured.append(made)
            size = f"{pluralize(made.workers, 'worker')}, {pluralize(made.ranks, 'rank')}"
            report(f"{len(output.measured)} of {number}: {size}: {made.speed:.1f} images/s")
    if len(output.measured) < number:
        raise RunFailedError(
            f"{name} ended after {len(output.measured)} of {number} measurements; its last line: "
            f"{last or 'none'}"
        )
    check_side_by_side(output.measured)
    return output
