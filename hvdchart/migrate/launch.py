"""Carries over a launcher's command line: launch, master.args, workers and slots. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hvdchart.migrate.command_line import parse_command_line
from hvdchart.migrate.expansion import Text
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.line import CommandLine
from hvdchart.spec.paths import KeyPath

# Where MPI Operator mounts its host file; scripts name it.
MPI_OPERATOR_HOSTFILE = "/etc/mpi/hostfile"
_TMP = "/tmp/"  # noqa: S108  a path of the image to recognize, no file of this process


def carry_over_command(ledger: Ledger, old: KeyPath, words: Sequence[str | Text]) -> CommandLine:
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
        carry_over_line(ledger, old, line)
    hidden = [word for word in line.command if word.startswith(_TMP)]
    if hidden:
        ledger.add_check(
            f"the command names {hidden[0]}: in a pod /tmp is an empty directory, which hides the "
            "image's own; move the file in the image"
        )
    return line


def carry_over_line(ledger: Ledger, old: KeyPath, line: CommandLine) -> None:
    """A parsed line -> master.args and launch, with an entry for each of its parts."""
    ledger.put(("master", "args"), line.command, old)
    ledger.add_part(old, "the training command", "master.args", "without its launcher")
    if line.mode != "mpirun":
        ledger.put(("launch", "mode"), line.mode, old)
        ledger.add_part(old, "horovodrun", "launch.mode", line.mode)
    for key, ranks in (("minRanks", line.min_ranks), ("maxRanks", line.max_ranks)):
        if ranks is not None:
            ledger.put(("launch", "elastic", key), ranks, old)
    if line.options:
        ledger.put(("launch", "options"), line.options, old)
    for part in line.parts:
        # Exports get their entries with the environment, which knows their values.
        if part.new not in ("launch.mode", "master.args", "worker.env"):
            ledger.add_part(old, " ".join(part.words), part.new, part.reason)
    if line.discovery:
        ledger.add_check(
            f"the host discovery script {line.discovery} is not used: the chart has its own, which "
            "lists the workers that are ready"
        )
    if line.unknown:
        ledger.add_check(
            f"the shell knew the value of {line.unknown} in an option that the chart sets: compare "
            "worker.number and worker.slots with it"
        )


def check_ranks(ledger: Ledger, line: CommandLine, workers: int, slots: int) -> None:
    """Add a check when the command line asked for another number of ranks than the chart starts."""
    if line.ranks is not None and line.ranks != workers * slots:
        ledger.add_check(
            f"the old command line started {line.ranks} ranks; {workers} workers x {slots} slots "
            f"start {workers * slots}"
        )
    elif line.per_host is not None and line.per_host != slots:
        ledger.add_check(
            f"the old command line started {line.per_host} ranks on each host; worker.slots is "
            f"{slots}"
        )


def check_elastic(
    ledger: Ledger, line: CommandLine, workers: int, slots: int, old: KeyPath
) -> None:
    """Raise SpecError for limits of an elastic run that its workers do not keep."""
    ranks = workers * slots
    for option, limit, wrong in (
        ("--min-np", line.min_ranks, (line.min_ranks or 0) > ranks),
        ("--max-np", line.max_ranks, 0 < (line.max_ranks or 0) < ranks),
    ):
        if wrong:
            problem = f"{option} is {limit}, but {workers} workers x {slots} slots start {ranks}"
            raise ledger.error(
                old, f"{problem} ranks", "limits that contain the ranks at the start"
            )
