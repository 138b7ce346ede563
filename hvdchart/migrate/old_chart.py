"""Convert values of the old published charts.

Sources of the keys: stable/horovod 1.0.2 (`master`) and horovod's docker/helm 1.0.3 (`driver`). The
meaning of a key is its effect in the templates of these charts, which differs from their READMEs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hvdchart.migrate.carry_over import (
    carry_over_command,
    carry_over_size,
    carry_over_variables,
    list_exports,
    variables_at,
)
from hvdchart.migrate.fields import apply_table
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.lines import LauncherLine, parse_or_keep
from hvdchart.migrate.pods import (
    carry_over_capabilities,
    carry_over_resources,
    carry_over_volumes,
    check_user,
)
from hvdchart.spec.paths import KeyPath

# One of these keys is enough: no other chart has them.
OLD_CHART_KEYS = {
    "worker": ("number", "image"),
    "master": ("args", "image"),
    "driver": ("args", "image"),
    "ssh": ("useSecrets", "hostKey", "hostKeyPub"),
}
# The default of both old charts.
_OLD_CHART_WORKERS = 3


def migrate_chart(ledger: Ledger) -> None:
    """Fill in the values and entries of an old values file, as a `convert.JobReader`."""
    head = "driver" if ledger.has(("driver",)) else "master"
    for path in (("worker",), (head,), ("ssh",), ("worker", "image"), (head, "image")):
        ledger.map_at(*path)
    apply_table(ledger, "old image", ("worker", "image"), "worker")
    apply_table(ledger, "old image", (head, "image"), "master", ("worker", "image"))
    if "repository" not in ledger.values.get("image", {}):
        ledger.add_check(
            "the file names no repository of the workers' image: the old chart ran "
            "horovod/horovod, this one has no default; set image.repository and image.tag"
        )
    gpus = carry_over_resources(ledger, ("resources",))
    # The old chart also set the master's variables in the workers.
    mine = variables_at(ledger, (head, "env"))
    old, line = carry_over_command(ledger, (head,), mine, _read_arguments)
    variables = {**variables_at(ledger, ("worker", "env")), **mine}
    won = {**mine, **list_exports(ledger, old, line, variables)}
    reasons: dict[KeyPath, str] = {
        (head, "env"): "the old chart set it on the workers too",
        ("worker", "env"): "the old chart ignored it",
    }
    carry_over_variables(ledger, reasons, ("worker", "env"), won, ("resources",))
    _carry_over_workers(ledger, old, line, gpus)
    apply_table(ledger, "old chart")
    carry_over_volumes(ledger, [(("volumes",), ("volumeMounts",))])
    carry_over_capabilities(ledger, ("capabilities",))
    check_user(ledger, "root")
    ledger.close("the old chart")


def _read_arguments(_: KeyPath, words: Sequence[str]) -> LauncherLine:
    """Read the arguments, which the old chart joined with spaces and passed to bash."""
    return parse_or_keep(["bash", "-c", " ".join(words)]) if words else LauncherLine()


def _carry_over_workers(ledger: Ledger, old: KeyPath, line: LauncherLine, gpus: int | None) -> None:
    """Carry over the number of workers: `-np` included the old master, which was also a host."""
    path = ("worker", "number")
    number = ledger.integer_at(*path)
    if number is None:
        number = _OLD_CHART_WORKERS
        ledger.add_check(f"worker.number is the old chart's default, {number}")
    slots = gpus or line.size.per_host or 1
    if gpus is not None and gpus > 1:
        ledger.add_check(
            f"the old chart ran one rank on each worker, whatever its GPUs; now it runs {gpus}"
        )
    if gpus is not None:
        ledger.add_part(("resources",), f"{gpus} GPUs", "worker.slots", "one rank for each GPU")
    ranks = line.size.ranks
    reason = ""
    if ranks is not None and number * slots < ranks <= (number + 1) * slots:
        number += 1
        reason = f"-np {ranks}: the old master ran ranks too, this one runs none"
    ledger.carry_over(path, path, reason, number)
    carry_over_size(ledger, old, line, number, slots, path)
