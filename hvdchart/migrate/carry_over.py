"""Carry over a launcher's command line and the variables of containers and launchers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hvdchart.chart_files import device_plugin
from hvdchart.migrate.command_line import WORKER_MINIMUM, CommandLine, parse_command_line
from hvdchart.migrate.ledger import Ledger, NewPath
from hvdchart.spec.paths import KeyPath, child_at, value_at
from hvdchart.spec.yaml_tree import Plain

# The path where MPI Operator mounts its host file; scripts refer to it.
MPI_OPERATOR_HOSTFILE = "/etc/mpi/hostfile"
# Why an option or a key with the minimum number of workers is dropped.
NO_MINIMUM = "no minimum: all workers are needed"
_TMP = "/tmp/"  # noqa: S108  a path of the image to recognize, no file of this process


def command_at(ledger: Ledger, container: KeyPath) -> tuple[KeyPath, list[KeyPath]]:
    """Return the path of a container's command line, and those of its words and arguments."""
    command = (*container, "command")
    arguments = (*container, "args")
    words = [*ledger.items_at(*command), *ledger.items_at(*arguments)]
    if not ledger.list_at(*command):
        return arguments, words
    if ledger.has(arguments):
        ledger.change(arguments, ("master", "args"), "the rest of the command line")
    return command, words


def carry_over_command(ledger: Ledger, old: KeyPath, words: Sequence[str]) -> CommandLine:
    """Convert the launcher's command line at `old` to master.args and launch.

    Return the parsed line.
    """
    line = parse_command_line(words)
    if line.mode == "custom":
        ledger.change(old, ("master", "args"))
        command = [word.replace(MPI_OPERATOR_HOSTFILE, "$(HOSTFILE)") for word in line.command]
        ledger.put(("master", "args"), command, old)
        ledger.put(("launch", "mode"), "custom", old)
        ledger.add_part(old, "the command line", "launch.mode", f"custom: {line.custom_reason}")
        ledger.add_check(
            "launch.mode is custom: the master runs the command line unchanged when all workers "
            "answer. It must start worker.number x worker.slots ranks on the hosts in "
            "/horovod/generated/hostfile, which an mpirun without a list of hosts reads by itself. "
            "A command that starts nothing in a worker fails (launch.allowIdleWorkers)"
        )
    else:
        ledger.change(old, ("master", "args"), "each part has a line of its own")
        carry_over_line(ledger, old, line)
    hidden = [word for word in line.command if word.startswith(_TMP)]
    if hidden:
        ledger.add_check(
            f"the command names {hidden[0]}: in a pod /tmp is an empty directory, which hides the "
            "image's own; move the file in the image"
        )
    return line


def carry_over_line(ledger: Ledger, old: KeyPath, line: CommandLine) -> None:
    """Map a parsed line to master.args and launch, with an entry for each of its parts.

    The parts that set a minimum get their entries together with the size.
    """
    ledger.put(("master", "args"), list(line.command), old)
    ledger.add_part(old, "the training command", "master.args", "without its launcher")
    if line.mode != "mpirun":
        ledger.put(("launch", "mode"), line.mode, old)
        ledger.add_part(old, line.launcher, "launch.mode", line.mode)
    if line.framework:
        ledger.put(("launch", "framework"), line.framework, old)
        ledger.add_part(old, line.launcher, "launch.framework", line.framework)
    if line.options:
        ledger.put(("launch", "options"), list(line.options), old)
    # Exports get their entries with the environment, which has their values.
    for part in line.parts:
        if part.new != WORKER_MINIMUM:
            ledger.add_part(old, *part)
    for check in line.checks:
        ledger.add_check(check)
    if line.size.discovery:
        ledger.add_check(
            f"the host discovery script {line.size.discovery} is not used: the master follows its "
            "workers itself"
        )


def check_size(
    ledger: Ledger, old: KeyPath, line: CommandLine, workers: int, slots: int, sized: KeyPath
) -> None:
    """Add a check if the line at `old` requests another number of ranks than the chart starts.

    The minimum number of ranks becomes worker.minimum. `sized` is the path of the number of
    workers.
    """
    asked = line.size
    ranks = workers * slots
    size = f"{workers} workers x {slots} slots start {ranks}"
    if asked.ranks is not None and asked.ranks != ranks:
        ledger.add_check(f"the old command line started {asked.ranks} ranks; {size}")
    elif asked.per_host is not None and asked.per_host != slots:
        ledger.add_check(
            f"the old command line started {asked.per_host} ranks on each host; worker.slots is "
            f"{slots}"
        )
    expected = "limits that contain the ranks at the start"
    if asked.min_ranks and asked.min_ranks > ranks:
        raise ledger.error(sized, f"--min-np is {asked.min_ranks}, but {size} ranks", expected)
    if asked.max_ranks and asked.max_ranks < ranks:
        raise ledger.error(sized, f"--max-np is {asked.max_ranks}, but {size} ranks", expected)
    minimum = asked.min_workers or -(-(asked.min_ranks or 0) // slots)
    least = [part.words for part in line.parts if part.new == WORKER_MINIMUM]
    if minimum > workers:
        problem = f"{' '.join(least)} has {minimum} workers as the fewest, but {size} ranks"
        raise ledger.error(old, problem, expected)
    is_put = 0 < minimum < workers
    if is_put:
        ledger.put(("worker", "minimum"), minimum, sized)
        ledger.add_check(
            "the run goes on with fewer workers, down to worker.minimum: the ranks start again, "
            "from what the script keeps (keep)"
        )
    reason = f"{minimum} of {workers} workers" if is_put else NO_MINIMUM
    for option in least:
        ledger.add_part(old, option, WORKER_MINIMUM if is_put else "", reason)
    if asked.max_ranks and asked.max_ranks > ranks:
        ledger.add_check(
            f"the old run could grow to {asked.max_ranks} ranks: for that set worker.number to "
            f"{asked.max_ranks // slots}, and worker.minimum to the fewest workers"
        )


Variable = dict[str, Plain]
"""A variable as Kubernetes has it: its name, and value or valueFrom."""

# Kubernetes' own rule: $$ is a dollar, $(NAME) a variable, anything else stays.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def variables_at(ledger: Ledger, old: KeyPath) -> dict[str, Variable]:
    """Return the variables in a map or a container's list."""
    return {str(entry["name"]): entry for _, entry in _variables(ledger, old) if entry}


def carry_over_variables(
    ledger: Ledger,
    sources: Mapping[KeyPath, str],
    new: NewPath,
    winning: Mapping[str, Variable],
    resources: KeyPath = (),
) -> None:
    """Put the variables of all sources, each with a reason, into the list at `new`.

    `winning` replace those of the same name. With GPUs of NVIDIA in the limits at `resources`, the
    chart refuses the variable that the device plugin sets, so it is left out.
    """
    entries: dict[str, Variable] = {}
    plugins = "the device plugin sets it to the GPUs that a worker gets"
    reserved = _of_device_plugin(ledger, resources)
    for old, reason in sources.items():
        for path, entry in _variables(ledger, old):
            name = str(entry.get("name"))
            if name == reserved:
                ledger.leave_out(path, plugins)
                continue
            if entry:
                entries[name] = winning.get(name, entry)
            if entry and entries[name] == entry:
                ledger.change(path, new, reason)
            else:
                ledger.drop(path, "the launcher sets it for all ranks, which wins as before")
    entries |= winning
    if entries.pop(reserved, None) is not None:
        ledger.add_check(f"{reserved}, which the launcher exports, is dropped: {plugins}")
    if entries:
        ledger.put(new, list(entries.values()), next(iter(sources)))


def _of_device_plugin(ledger: Ledger, resources: KeyPath) -> str:
    """Return the device plugin's variable in a container with these resources, if any."""
    limits = child_at(ledger.value_at(*resources), "limits") if resources else None
    plugin = device_plugin(limits) if isinstance(limits, dict) else None
    return plugin.variable if plugin else ""


def _variables(ledger: Ledger, old: KeyPath) -> Iterator[tuple[KeyPath, Variable]]:
    """Yield each variable with its path; a variable without a value in a map is empty: not set."""
    if not isinstance(ledger.value_at(*old), list):
        for name, value in ledger.map_at(*old).items():
            text = ledger.text_at(*old, name)
            shown = text.lower() if isinstance(value, bool) else text
            yield (*old, name), {} if value is None else {"name": name, "value": shown}
        return
    before: dict[str, Variable] = {}
    for path in ledger.items_at(*old):
        entry = {key: value for key, value in ledger.map_at(*path).items() if value is not None}
        name = ledger.text_at(*path, "name")
        if not name or name in before:
            problem = f"the variable {name} is set twice" if name else "a variable without a name"
            raise ledger.error(path, problem, "one entry with the name and the value of each")
        if "value" in entry:
            text = ledger.text_at(*path, "value")
            entry["value"] = expand_references(ledger, (*path, "value"), text, before, keep=True)
        before[name] = entry
        yield path, entry


def expand_references(
    ledger: Ledger, old: KeyPath, text: str, entries: Mapping[str, Variable], *, keep: bool = False
) -> str:
    """Replace $(NAME) in `text` by the value of the variable, as Kubernetes does.

    The name of an unknown variable stays. Raises SpecError for a variable whose value is not in the
    file (valueFrom); with `keep`, such a reference stays, for Kubernetes to replace.
    """

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$$" if keep else "$"
        entry = entries.get(match[1])
        value = str((entry or {}).get("value", ""))
        inside = [entries.get(inner[1], {}) for inner in _REFERENCE.finditer(value)]
        if entry is None or (keep and "valueFrom" in entry):
            return match[0]
        if not keep and any("valueFrom" in each for each in [entry, *inside]):
            problem = f"{match[0]} has its value from the cluster (valueFrom)"
            expected = f"a program that reads the variable {match[1]} itself"
            raise ledger.error(old, problem, expected)
        return value if keep else value.replace("$$", "$")

    return _REFERENCE.sub(replace, text)


def _is_of_pod(entry: Variable) -> bool:
    """Return whether the value of a variable differs from pod to pod."""
    field = value_at(entry, ("valueFrom", "fieldRef", "fieldPath"))
    resource = value_at(entry, ("valueFrom", "resourceFieldRef"))
    return field not in (None, "metadata.namespace") or resource is not None


def exported(
    ledger: Ledger,
    old: KeyPath,
    line: CommandLine,
    launcher: Mapping[str, Variable],
) -> dict[str, Variable]:
    """Return the variables that the launcher at `old` exports, with an entry for each option.

    An export without a value has the value of the launcher's own variable. Checks list the exports
    that have no value there, and the variables that describe the launcher's own pod: in a worker,
    such a variable would describe the worker.
    """
    of_pod = {name for name, entry in launcher.items() if _is_of_pod(entry)}
    winning: dict[str, Variable] = {}
    if line.exports_all:
        winning = {name: launcher[name] for name in launcher if name not in of_pod}
    gone = (
        of_pod
        if line.exports_all
        else {each.variable for each in line.exports if each.value is None}
    )
    if lost := sorted(of_pod & gone):
        ledger.add_check(
            f"the launcher gave {', '.join(lost)} to all ranks, which name its own pod: here they "
            "have no such value; let the program find it in another way"
        )
    unset: list[str] = []
    for given, name, value in line.exports:
        # The value may be a secret.
        option = f"{given} {name}" if value is None else f"{given} {name}=..."
        if value is not None:
            # Kubernetes would replace $(NAME) and $$ in the new variable.
            winning[name] = {"name": name, "value": re.sub(r"\$(?=[$(])", "$$", value)}
        elif name in of_pod:
            ledger.add_part(old, option, "", "it names the launcher's own pod")
            continue
        elif name in launcher:
            winning[name] = launcher[name]
        else:
            ledger.add_part(old, option, "", "every rank has its worker's environment")
            unset += [name] if name not in ("PATH", "LD_LIBRARY_PATH", "HOME") else []
            continue
        ledger.add_part(old, option, "worker.env", "every rank has its worker's environment")
    if unset:
        ledger.add_check(
            f"the launcher gives {', '.join(unset)} to all ranks, and the file has no value: set "
            "worker.env if the image does not set it"
        )
    for name, entry in winning.items():
        unknown = [
            match[1]
            for match in _REFERENCE.finditer(str(entry.get("value", "")))
            if match[1] in launcher and match[1] not in winning
        ]
        if unknown:
            problem = f"{name} is exported and refers to {unknown[0]}, which only the launcher has"
            raise ledger.error(old, problem, f"-x {unknown[0]} too, or a value in the file")
    return winning
