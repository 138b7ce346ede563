"""Report a plan: as a document for programs, and as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hvdchart.plan.model import Plan
from hvdchart.quantity import memory_text, pluralize
from hvdchart.spec.model import mount_path
from hvdchart.spec.yaml_tree import Plain
from hvdchart.values.from_plan import explain, make_values, value_in

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LEARNING_RATE_RULE = "linear scaling: the learning rate of one rank times the ranks, warmed up"


def document(plan: Plan) -> dict[str, Plain]:
    """Return the plan as JSON data; its keys are stable."""
    return {
        "name": plan.spec.name,
        "workers": plan.workers,
        "spares": plan.spares,
        "ranks": plan.ranks,
        "globalBatch": plan.global_batch,
        "learningRateScale": plan.ranks,
        "binding": {
            "to": plan.launching.binding.to,
            "coresPerRank": plan.launching.binding.cores_per_rank or None,
            "ranksPerSocket": plan.launching.binding.ranks_per_socket or None,
        },
        "framework": plan.framework.name,
        "launchMode": plan.framework.mode,
        "launchOptions": list(plan.spec.launch.options),
        "shm": memory_text(plan.shm),
        "groups": [
            {
                "name": group.group.name,
                "nodes": group.group.count,
                "spares": group.group.spares,
                "slots": group.slots,
                "ranks": group.ranks,
                "env": dict(group.env),
                "requests": dict(group.requests),
                "limits": dict(group.limits),
            }
            for group in plan.groups
        ],
        "volumes": {
            name: {"mountPath": mount_path(name, volume), "source": volume.sources[0]}
            for name, volume in plan.spec.volumes.items()
        },
        "warnings": list(plan.warnings),
        "reasons": [
            {"value": name, "is": is_, "because": because, "source": source}
            for name, is_, because, source in reasons(plan)
        ],
    }


def reasons(plan: Plan) -> list[tuple[str, Plain, str, str]]:
    """Return one row per planned value: its path, the value, the reason, and the rule's source."""
    values = make_values(plan)
    rows = []
    for path, reason in explain(plan).items():
        value = value_in(values, path)
        if value is not None:
            name = ".".join(str(step) for step in path)
            rows.append((name, value, reason.because, reason.source))
    return rows


def tables(plan: Plan) -> list[RenderableType]:
    """Return the output of `hvdchart plan`, as rich renderables."""
    from rich.text import Text

    parts: list[RenderableType] = [_groups_table(plan)]
    if plan.spec.volumes:
        parts.append(_volumes_table(plan))
    parts.append(Text(f"launch: {', '.join(_launch_words(plan))}"))
    batch = "" if plan.global_batch is None else f"global batch {plan.global_batch}; "
    if batch or plan.ranks > 1:
        advice = f"your script may set learning rate x {plan.ranks} ({LEARNING_RATE_RULE})"
        parts.append(Text(f"{batch}{advice}"))
    parts += [Text(f"warning: {warning}", style="yellow") for warning in plan.warnings]
    return parts


def _groups_table(plan: Plan) -> Table:
    from rich.table import Table

    size = f"{pluralize(plan.ranks, 'rank')} on {pluralize(plan.workers, 'worker')}"
    size += f" with {pluralize(plan.spares, 'spare')}" if plan.spares else ""
    groups = Table(title=f"{plan.spec.name}: {size}")
    groups.add_column("group")
    for name in ("nodes", "slots", "ranks", "OMP/intra/inter", "CPUs", "memory"):
        groups.add_column(name, justify="right")
    groups.add_column("devices")
    for group in plan.groups:
        names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
        threads = "/".join(group.env.get(name, "-") for name in names)
        devices = [f"{count} {name}" for name, count in group.limits.items() if "/" in name]
        spares = f"+{group.group.spares}" if group.group.spares else ""
        numbers = [f"{group.group.count}{spares}", str(group.slots), str(group.ranks), threads]
        requests = [group.requests.get(name, "-") for name in ("cpu", "memory")]
        groups.add_row(group.group.name, *numbers, *requests, ", ".join(devices) or "-")
    return groups


def _volumes_table(plan: Plan) -> Table:
    from rich.table import Table

    volumes = Table("volume", "source", "mount path", "mode", "groups")
    for name, volume in plan.spec.volumes.items():
        mode = "read only" if volume.read_only else "read and write"
        groups = ", ".join(volume.groups) or "all"
        volumes.add_row(name, volume.sources[0], mount_path(name, volume), mode, groups)
    return volumes


def _launch_words(plan: Plan) -> list[str]:
    binding = plan.launching.binding
    words = [plan.framework.mode, f"bound to {binding.to}"]
    if binding.cores_per_rank:
        words.append(f"{pluralize(binding.cores_per_rank, 'core')} per rank")
    if binding.ranks_per_socket:
        words.append(f"{pluralize(binding.ranks_per_socket, 'rank')} per socket")
    return [*words, *plan.spec.launch.options]


def reason_table(plan: Plan) -> Table:
    """Return the output of `--explain`, as a rich table: one row per planned value."""
    from rich.table import Table

    table = Table(title=f"{plan.spec.name}: where each number comes from")
    table.add_column("value", overflow="fold")
    for name in ("is", "because", "source"):
        table.add_column(name)
    for name, value, because, source in reasons(plan):
        shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        table.add_row(name, shown, because, source)
    return table
