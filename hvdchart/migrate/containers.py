"""Carries over what a container of a migrated file sets: image, resources, command, environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdchart.chart_files import is_gpu
from hvdchart.migrate.command_line import CommandLine, parse_command_line
from hvdchart.migrate.ledger import Ledger, NewPath
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import Plain

# Where MPI Operator mounts its host file; scripts name it.
MPI_OPERATOR_HOSTFILE = "/etc/mpi/hostfile"


def split_image(reference: str) -> tuple[str, str]:
    """Repository and tag of an image reference; the chart puts a colon between the two.

    registry:5000/a/b -> (registry:5000/a/b, latest); a@sha256:1234 -> (a@sha256, 1234).
    """
    name, colon, tag = reference.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (reference, "latest")


def carry_over_image(ledger: Ledger, old: KeyPath, new: NewPath) -> None:
    """An image reference -> the chart's repository and tag at `new`."""
    repository, tag = split_image(ledger.text_at(*old))
    ledger.put((*new, "repository"), repository, old)
    ledger.put((*new, "tag"), tag, old)
    ledger.change(old, new, "split into repository and tag")


def count_gpus(resources: Plain) -> int | None:
    """The GPUs that a container limits or requests; None without any."""
    for part in ("limits", "requests"):
        amounts = resources.get(part) if isinstance(resources, Mapping) else None
        for name, count in amounts.items() if isinstance(amounts, Mapping) else ():
            if is_gpu(name) and str(count).isdecimal() and int(count) > 0:
                return int(count)
    return None


def carry_over_resources(ledger: Ledger, old: KeyPath) -> int | None:
    """The workers' resources; returns their number of GPUs, None without any."""
    ledger.carry_over(old, ("worker", "resources"))
    return count_gpus(ledger.value_at(*old))


def carry_over_command(ledger: Ledger, old: KeyPath, words: Sequence[str]) -> CommandLine:
    """The launcher's command line at `old` -> master.args and launch; returns the parsed line."""
    line = parse_command_line(words)
    if line.mode == "custom":
        ledger.change(old, ("master", "args"))
        command = [word.replace(MPI_OPERATOR_HOSTFILE, "$(HOSTFILE)") for word in line.command]
        ledger.put(("master", "args"), command, old)
        ledger.put(("launch", "mode"), "custom", old)
        ledger.add_part(old, "the command line", "launch.mode", f"custom: {line.custom_reason}")
        ledger.add_check(
            "launch.mode is custom: the master runs the command line unchanged when all workers "
            "answer. It must name the host file /horovod/generated/hostfile and start "
            "worker.number x worker.slots ranks"
        )
    else:
        ledger.change(old, ("master", "args"), "each part has a line of its own")
        _carry_over_launcher(ledger, old, line)
    if any("$(" in word for word in words):
        ledger.add_check(
            "Kubernetes replaced $(NAME) in the old arguments by the variable's value; this chart "
            "does not"
        )
    return line


def _carry_over_launcher(ledger: Ledger, old: KeyPath, line: CommandLine) -> None:
    ledger.put(("master", "args"), line.command, old)
    ledger.add_part(old, "the training command", "master.args", "without its launcher")
    if line.mode != "mpirun":
        ledger.put(("launch", "mode"), line.mode, old)
        ledger.add_part(old, "horovodrun", "launch.mode", line.mode)
    for option, key, ranks in (
        ("--min-np", "minRanks", line.min_ranks),
        ("--max-np", "maxRanks", line.max_ranks),
    ):
        if ranks is not None:
            ledger.put(("launch", "elastic", key), ranks, old)
            ledger.add_part(old, f"{option} {ranks}", f"launch.elastic.{key}")
    if line.options:
        ledger.put(("launch", "options"), line.options, old)
        ledger.add_part(old, " ".join(line.options), "launch.options", "unchanged")
    for option, reason in line.dropped:
        ledger.add_part(old, option, "", reason)


def check_ranks(ledger: Ledger, line: CommandLine, workers: int, slots: int) -> None:
    """Add a check when the command line asked for another number of ranks than the chart starts."""
    if line.ranks is not None and line.ranks != workers * slots:
        ledger.add_check(
            f"the old command line started {line.ranks} ranks; {workers} workers x {slots} slots "
            f"start {workers * slots}"
        )


class Environment:
    """The variables of one list; the first value of a name counts."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Plain]] = {}

    def add(self, entry: dict[str, Plain]) -> bool:
        """Add a variable; False when the list already has another value for its name."""
        return self.entries.setdefault(str(entry.get("name")), entry) == entry

    def put(self, ledger: Ledger, new: NewPath, old: KeyPath) -> None:
        """Put the variables at `new` in the chart's values."""
        if self.entries:
            ledger.put(new, list(self.entries.values()), old)


def add_variable_map(ledger: Ledger, old: KeyPath, environment: Environment, reason: str) -> None:
    """Add a map of names to values to the variables for worker.env."""
    for name, value in ledger.map_at(*old).items():
        path = (*old, name)
        text = ledger.text_at(*path)
        if value is None:
            ledger.drop(path, "")
        elif environment.add(
            {"name": name, "value": text.lower() if isinstance(value, bool) else text}
        ):
            ledger.change(path, ("worker", "env"), reason)
        else:
            ledger.drop(path, "the variable is set twice: the launcher's value is used")


def add_variable_list(ledger: Ledger, old: KeyPath, environment: Environment, new: NewPath) -> None:
    """Add a container's list of variables to those for `new`."""
    for path in ledger.items_at(*old):
        entry = ledger.map_at(*path)
        if "name" not in entry:
            ledger.drop(path, "the variable has no name")
        elif environment.add(entry):
            ledger.change(path, new)
        else:
            ledger.drop(path, "the variable is set twice: the first value is used")


def add_exports(
    ledger: Ledger,
    old: KeyPath,
    line: CommandLine,
    environment: Environment,
    launcher_variables: Mapping[str, dict[str, Plain]],
) -> None:
    """Add the variables that mpirun's -x exports from the command line at `old`.

    An export without a value has the value of the launcher's own variable.
    """
    for name, value in line.exports:
        option = f"-x {name}" if value is None else f"-x {name}=..."
        if value is None and name not in launcher_variables:
            ledger.add_part(old, option, "", "every rank has its worker's environment")
            continue
        entry = launcher_variables[name] if value is None else {"name": name, "value": value}
        if environment.add(entry):
            ledger.add_part(old, option, "worker.env", "every rank has its worker's environment")
        else:
            ledger.add_part(old, option, "", f"worker.env already sets {name} to another value")
