"""Carry over a launcher's line, the variables of ranks, and the size of the run. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile

from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS
from hvdchart.chart_files import device_plugin
from hvdchart.migrate.ledger import Ledger, NewPath
from hvdchart.migrate.lines import WORKER_MINIMUM, LauncherLine
from hvdchart.spec.paths import KeyPath, child_at, value_at
from hvdchart.spec.yaml_tree import Plain

Variable = dict[str, Plain]
"""A variable as Kubernetes has it: its name, and value or valueFrom."""

# Kubernetes' own rule: $$ is a dollar, $(NAME) a variable, anything else stays.
_VARIABLE_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
# Where ranks meet, and the place of each: the variables of the old job name its own pods. A rank of
# the chart keeps the former.
OWN_OF_RANKS = frozenset(("MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS")).union(
    *LAUNCHER_OPTIONS["placeVariables"].values()
)
_SET_BY_CHART = "the chart gives each rank its own"
# The path where MPI Operator mounts its host file; scripts refer to it.
_MPI_OPERATOR_HOSTFILE = "/etc/mpi/hostfile"
_CUSTOM = (
    "launch.mode is custom: the master runs the command line unchanged when all workers answer. It "
    "must start worker.number x worker.slots ranks on the hosts in /horovod/generated/hostfile, "
    "which an mpirun without a list of hosts reads by itself. A command that starts nothing in a "
    "worker fails (launch.allowIdleWorkers)"
)


def carry_over_command(
    ledger: Ledger,
    container: KeyPath,
    variables: Mapping[str, Variable],
    read_line: Callable[[KeyPath, Sequence[str]], LauncherLine],
) -> tuple[KeyPath, LauncherLine]:
    """Carry over a container's command line; return its path, and what `read_line` makes of it.

    `read_line` gets the path and the words, with the values of `variables`; without a command, no
    words.
    """
    command = (*container, "command")
    arguments = (*container, "args")
    old = command if ledger.list_at(*command) else arguments
    items = [*ledger.items_at(*command), *ledger.items_at(*arguments)]
    words = [expand_references(ledger, at, ledger.text_at(*at), variables) for at in items]
    line = read_line(old, words)
    if words:
        ledger.change(old, ("master", "args"), "each part has a line of its own")
        ledger.change(arguments, ("master", "args"), "the rest of the command line")
    else:
        ledger.add_check(
            "the file has no training command, so that of the image or runtime ran; this chart "
            "runs a check of allreduce instead. Put the command into master.args"
        )
    carry_over_line(ledger, old, line)
    return old, line


def carry_over_line(ledger: Ledger, old: KeyPath, line: LauncherLine) -> None:
    """Map a parsed line to master.args and launch, with an entry for each of its parts.

    carry_over_size adds the entries of the parts that set a minimum.
    """
    if line.mode == "custom":
        command = [word.replace(_MPI_OPERATOR_HOSTFILE, "$(HOSTFILE)") for word in line.command]
        ledger.put(("master", "args"), command, old)
        ledger.add_part(old, "the command line", "launch.mode", f"custom: {line.custom_reason}")
        ledger.add_check(_CUSTOM)
    elif line.command:
        ledger.put(("master", "args"), line.command, old)
        ledger.add_part(old, "the training command", "master.args", "without its launcher")
    settings = {"mode": line.mode if line.mode != "mpirun" else "", "framework": line.framework}
    for key, word in settings.items():
        if word:
            ledger.put(("launch", key), word, old)
            if line.mode != "custom":
                ledger.add_part(old, line.launcher, f"launch.{key}", word)
    if line.options:
        ledger.put(("launch", "options"), line.options, old)
    # Exports get their entries with the environment, which has their values.
    for part in line.parts:
        if part.key != WORKER_MINIMUM:
            ledger.add_part(old, *part)
    for check in line.checks:
        ledger.add_check(check)


def carry_over_size(
    ledger: Ledger, old: KeyPath, line: LauncherLine, workers: int, slots: int, sized: KeyPath
) -> None:
    """Put the size of the run, and add a check if the line at `old` requests other ranks.

    The minimum number of ranks becomes worker.minimum. `sized` is the path of the number of
    workers.
    """
    asked = line.size
    ranks = workers * slots
    size = f"{workers} workers x {slots} slots start {ranks}"
    ledger.put(("worker", "number"), workers, sized)
    ledger.put(("worker", "slots"), slots, sized)
    if asked.ranks is not None and asked.ranks != ranks:
        ledger.add_check(f"the old command line started {asked.ranks} ranks; {size}")
    elif asked.per_host is not None and asked.per_host != slots:
        ledger.add_check(
            f"the old command line started {asked.per_host} ranks on each host; worker.slots is "
            f"{slots}"
        )
    _carry_over_minimum(ledger, old, line, workers, slots, sized)
    if asked.max_ranks and asked.max_ranks > ranks:
        ledger.add_check(
            f"the old run could grow to {asked.max_ranks} ranks: for that set worker.number to "
            f"{asked.max_ranks // slots}, and worker.minimum to the fewest workers"
        )


def _carry_over_minimum(
    ledger: Ledger, old: KeyPath, line: LauncherLine, workers: int, slots: int, sized: KeyPath
) -> None:
    """Put worker.minimum if a line asks for fewer workers than all. Raises SpecError for more."""
    asked = line.size
    minimum = asked.min_workers or -(-(asked.min_ranks or 0) // slots)
    if minimum > workers:
        size = f"{workers} workers x {slots} slots start {workers * slots} ranks"
        problem = f"the fewest are {minimum} workers of {slots} slots, but {size}"
        raise ledger.error(sized, problem, "limits that contain the ranks at the start")
    is_less = 0 < minimum < workers
    reason = f"{minimum} of {workers} workers" if is_less else "the run needs all workers"
    for part in line.parts:
        if part.key == WORKER_MINIMUM:
            ledger.add_part(old, part.text, part.key if is_less else "", reason)
    if is_less:
        ledger.put(("worker", "minimum"), minimum, sized)
        ledger.add_check(
            "the run continues with fewer workers, down to worker.minimum: the ranks start again, "
            "from what the script keeps (keep)"
        )


def variables_at(ledger: Ledger, old: KeyPath) -> dict[str, Variable]:
    """Return the variables in a map or a container's list, by name."""
    if not isinstance(ledger.value_at(*old), list):
        return _variables_in_map(ledger, old)
    variables: dict[str, Variable] = {}
    for path in ledger.items_at(*old):
        entry = {key: value for key, value in ledger.map_at(*path).items() if value is not None}
        name = ledger.text_at(*path, "name")
        if not name or name in variables:
            problem = f"the variable {name} is set twice" if name else "a variable without a name"
            raise ledger.error(path, problem, "one entry with the name and the value of each")
        if "value" in entry:
            entry["value"] = ledger.text_at(*path, "value")
        variables[name] = entry
    return variables


def _variables_in_map(ledger: Ledger, old: KeyPath) -> dict[str, Variable]:
    variables: dict[str, Variable] = {}
    for name, value in ledger.map_at(*old).items():
        text = ledger.text_at(*old, name)
        if value is not None:
            shown = text.lower() if isinstance(value, bool) else text
            variables[name] = {"name": name, "value": shown}
    return variables


def carry_over_variables(
    ledger: Ledger,
    sources: Mapping[KeyPath, str],
    new: NewPath,
    winning: Mapping[str, Variable],
    resources: KeyPath = (),
) -> None:
    """Put the variables of all sources, each with a reason, into the list at `new`.

    `winning` replace those of the same name. Variables that the chart gives to each rank are left
    out. With GPUs of NVIDIA in the limits at `resources`, the chart refuses the variable that the
    device plugin sets, so it is left out as well.
    """
    entries: dict[str, Variable] = {}
    limits = child_at(ledger.value_at(*resources), "limits") if resources else None
    plugin = device_plugin(limits) if isinstance(limits, dict) else None
    reserved = dict.fromkeys(OWN_OF_RANKS, _SET_BY_CHART)
    if plugin:
        reserved[plugin.variable] = "the device plugin sets it to the GPUs that a worker gets"
    for old, reason in sources.items():
        is_list = isinstance(ledger.value_at(*old), list)
        for index, (name, entry) in enumerate(variables_at(ledger, old).items()):
            path = (*old, index if is_list else name)
            entries[name] = winning.get(name, entry)
            if name in reserved:
                ledger.leave_out(path, f"{reserved[name]} ({name})")
            elif entries[name] == entry:
                ledger.change(path, new, reason)
            else:
                ledger.drop(path, "the launcher sets it for all ranks, which wins as before")
    for name in sorted(winning.keys() & reserved.keys()):
        ledger.add_check(f"{name}, which the launcher exports, is dropped: {reserved[name]}")
    entries |= winning
    entries = {name: entry for name, entry in entries.items() if name not in reserved}
    if entries:
        ledger.put(new, list(entries.values()), next(iter(sources)))


def expand_references(
    ledger: Ledger, old: KeyPath, text: str, variables: Mapping[str, Variable]
) -> str:
    """Replace $(NAME) in `text` by the value of the variable, as Kubernetes does.

    The name of an unknown variable stays. Raises SpecError for a variable whose value is not in the
    file (valueFrom).
    """

    def replace(match: re.Match[str]) -> str:
        entry = variables.get(match[1])
        if match[0] == "$$" or entry is None:
            return "$" if match[0] == "$$" else match[0]
        if "valueFrom" in entry:
            problem = f"{match[0]} has its value from the cluster (valueFrom)"
            expected = f"a program that reads the variable {match[1]} itself"
            raise ledger.error(old, problem, expected)
        earlier = dict(takewhile(lambda variable: variable[0] != match[1], variables.items()))
        return expand_references(ledger, old, str(entry.get("value", "")), earlier)

    return _VARIABLE_REFERENCE.sub(replace, text)


def list_exports(
    ledger: Ledger, old: KeyPath, line: LauncherLine, launcher: Mapping[str, Variable]
) -> dict[str, Variable]:
    """Return the variables that the launcher at `old` exports, with an entry for each option.

    An export without a value has the value of the launcher's own variable. A check lists those that
    have none there. Raises SpecError for a variable that means something else in a worker.
    """
    winning = dict(launcher) if line.exports_all else {}
    winning = {name: entry for name, entry in winning.items() if name not in OWN_OF_RANKS}
    winning |= _read_exports(line, launcher)
    for export in line.exports:
        text = f"{export.option} {export.variable}"
        if export.variable in OWN_OF_RANKS:
            ledger.add_part(old, text, "", _SET_BY_CHART)
            continue
        # The value may be a secret.
        text += "" if export.value is None else "=..."
        key = "worker.env" if export.variable in winning else ""
        ledger.add_part(old, text, key, "every rank has its worker's environment")
    _check_unset(ledger, line, launcher)
    for name, entry in winning.items():
        _refuse_own_of_launcher(ledger, old, name, entry, launcher.keys() - winning.keys())
    return winning


def _read_exports(line: LauncherLine, launcher: Mapping[str, Variable]) -> dict[str, Variable]:
    """Return the variables that the line exports by name, and whose value is known."""
    variables: dict[str, Variable] = {}
    for export in line.exports:
        name = export.variable
        if name in OWN_OF_RANKS:
            continue
        if export.value is not None:
            # Kubernetes would replace $(NAME) and $$ in the new variable.
            variables[name] = {"name": name, "value": re.sub(r"\$(?=[$(])", "$$", export.value)}
        elif name in launcher:
            variables[name] = launcher[name]
    return variables


def _check_unset(ledger: Ledger, line: LauncherLine, launcher: Mapping[str, Variable]) -> None:
    """Add a check that lists exports without a value, unless images have their own."""
    names = {*launcher, *OWN_OF_RANKS, "PATH", "LD_LIBRARY_PATH", "HOME"}
    unset = [
        export.variable
        for export in line.exports
        if export.value is None and export.variable not in names
    ]
    if unset:
        ledger.add_check(
            f"the launcher gives {', '.join(unset)} to all ranks, and the file has no value: set "
            "worker.env if the image does not set it"
        )


def _refuse_own_of_launcher(
    ledger: Ledger, old: KeyPath, name: str, entry: Variable, own_names: Collection[str]
) -> None:
    """Refuse an exported variable that means something else in a worker. Raises SpecError.

    `own_names` are the names of the variables that only the launcher has.
    """
    used = [match[1] for match in _VARIABLE_REFERENCE.finditer(str(entry.get("value", "")))]
    if unknown := [variable for variable in used if variable in own_names]:
        problem = f"{name} is exported and refers to {unknown[0]}, which only the launcher has"
        raise ledger.error(old, problem, f"-x {unknown[0]} too, or a value in the file")
    if any(value_at(entry, ("valueFrom", key)) for key in ("fieldRef", "resourceFieldRef")):
        problem = f"{name} is exported to all ranks, and describes the launcher's own pod"
        raise ledger.error(
            old, problem, "the launcher without it, and a program that finds it itself"
        )
