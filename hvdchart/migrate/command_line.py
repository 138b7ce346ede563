"""An old launcher's command line -> the chart's launch mode, options and training command. Pure.

Which options take how many arguments: mpirun(1) of Open MPI 4.1, `horovodrun --help` of 0.28.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_FLAGS = frozenset(
    [
        "allow-run-as-root",
        "display-map",
        "display-devel-map",
        "display-topo",
        "display-allocation",
        "display-devel-allocation",
        "report-bindings",
        "tag-output",
        "timestamp-output",
        "xml",
        "oversubscribe",
        "nooversubscribe",
        "bind-to-core",
        "bind-to-socket",
        "bind-to-none",
        "bycore",
        "bysocket",
        "bynode",
        "byslot",
        "pernode",
        "nolocal",
        "novm",
        "quiet",
        "q",
        "verbose",
        "v",
        "merge-stderr-to-stdout",
        "enable-recovery",
        "disable-recovery",
        "use-hwthread-cpus",
        "debug-devel",
        "d",
        "debug-daemons",
        "leave-session-attached",
        "gloo",
        "mpi",
        "mpi-threads-disable",
        "disable-cache",
        "autotune",
        "no-stall-check",
        "log-with-timestamp",
        "log-without-timestamp",
        "tcp",
    ]
)
_ONE = frozenset(
    [
        "np",
        "n",
        "c",
        "host",
        "H",
        "hostfile",
        "machinefile",
        "default-hostfile",
        "x",
        "map-by",
        "bind-to",
        "rank-by",
        "npernode",
        "N",
        "npersocket",
        "cpus-per-proc",
        "cpus-per-rank",
        "cpu-list",
        "cpu-set",
        "rankfile",
        "rf",
        "output-filename",
        "wdir",
        "wd",
        "prefix",
        "stdin",
        "timeout",
        "report-uri",
        "path",
        "tune",
        "am",
        "runtime-options",
        "display",
        "output",
        "min-np",
        "max-np",
        "num-proc",
        "p",
        "ssh-port",
        "ssh-identity-file",
        "network-interface",
        "network-interfaces",
        "start-timeout",
        "elastic-timeout",
        "fusion-threshold-mb",
        "cycle-time-ms",
        "cache-capacity",
        "timeline-filename",
        "autotune-log-file",
        "mpi-args",
        "binding-args",
        "log-level",
        "thread-affinity",
        "host-discovery-script",
        "slots-per-host",
        "reset-limit",
        "gloo-timeout-seconds",
    ]
)
_TWO = frozenset(["mca", "gmca", "prtemca", "pmixmca"])
_COUNT = frozenset(["np", "n", "c", "num-proc"])
_HOSTS = frozenset(["host", "H", "hostfile", "machinefile", "default-hostfile"])
_ELASTIC = {
    "min-np": "launch.elastic.minRanks says it",
    "max-np": "launch.elastic.maxRanks says it",
    "host-discovery-script": "the chart has its own, with launch.mode elastic",
}
_CHARTS_MCA = {
    "orte_keep_fqdn_hostnames": "the chart sets it",
    "plm_rsh_agent": "the chart starts its own ssh",
    "plm_rsh_args": "ssh.port and the host keys are in the chart's ssh configuration",
    "plm_rsh_no_tree_spawn": "the chart sets it",
    "plm_rsh_num_concurrent": "the chart sets it",
    "orte_default_hostfile": "the chart writes the hostfile",
}
_SHELLS = frozenset(("sh", "bash", "dash", "ash"))
# What a shell would act on; quotes are looked at separately.
_SHELL_WORK = re.compile(r"[|&;<>()`$\n*?\[\]{}~!#=]")
LAUNCHERS = {"mpirun": "mpirun", "mpiexec": "mpirun", "orterun": "mpirun",
             "horovodrun": "horovodrun"}  # fmt: skip


@dataclass
class CommandLine:
    """A launcher's command line taken apart.

    `ranks` is the number asked for, None when none was; `fewest` and `most` are an elastic run's.
    `exports` are the -x options: a name and the value given with it, None without one.
    `left_out` are (words, why), in their order.
    """

    mode: str
    options: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    ranks: int | None = None
    exports: list[tuple[str, str | None]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    fewest: int | None = None
    most: int | None = None
    why_custom: str = ""


def take_apart(words: Sequence[str]) -> CommandLine:
    """Take a command line apart; one that is not plainly a launcher's stays whole, as `custom`."""
    line = _without_shell(words)
    if line is None:
        return _whole(words, "a shell works on the line before the launcher does")
    launcher = PurePosixPath(line[0]).name if line else ""
    mode = LAUNCHERS.get(launcher)
    if mode is None:
        return _whole(words, f"{launcher or 'nothing'} is not a launcher known here")
    found = CommandLine(mode)
    rest = line[1:]
    while rest and rest[0].startswith("-") and rest[0] != "--":
        taken = _option(rest, found)
        if taken == 0:
            return _whole(words, f"option {rest[0]} of {launcher} is not known here")
        rest = rest[taken:]
    found.command = rest[1:] if rest[:1] == ["--"] else rest
    if not found.command:
        return _whole(words, f"{launcher} is given no command")
    if ":" in found.command:
        return _whole(words, "several programs in one line (:)")
    return found


def _whole(words: Sequence[str], why: str) -> CommandLine:
    return CommandLine("custom", command=list(words), why_custom=why)


def _without_shell(words: Sequence[str]) -> list[str] | None:
    """The words of the line itself, out of `sh -c` or one string; None when a shell has work."""
    if len(words) == 1 and " " in words[0]:
        return _split(words[0])
    if len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS:
        return _split(words[2]) if words[1] in ("-c", "-ec", "-lc", "-exc", "-xc") else None
    return list(words)


def _split(text: str) -> list[str] | None:
    """The words of a line that no shell need work on; text in single quotes is only text."""
    outside = re.sub(r"'[^']*'", "''", text.replace("\\\n", " "))
    # NAME=value matters to a shell only as the first word.
    later = outside.strip().partition(" ")[2].replace("=", "")
    if _SHELL_WORK.search(outside.strip().partition(" ")[0] + later):
        return None
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        return None


def _option(rest: Sequence[str], found: CommandLine) -> int:
    """Deal with the option at the front; how many words it took, 0 when it is not known."""
    name, has_value, value = rest[0].lstrip("-").partition("=")
    width = 1 if name in _FLAGS or has_value else 2 if name in _ONE else 3 if name in _TWO else 0
    if not width or len(rest) < width or (has_value and name not in _ONE):
        return 0
    words = list(rest[:width])
    value = value if has_value else "".join(words[1:2])
    why = _why_left_out(name, words)
    if name in _COUNT:
        if not value.isdecimal():
            return 0
        found.ranks = int(value)
    elif name in _ELASTIC:
        if not (value.isdecimal() or name == "host-discovery-script"):
            return 0
        found.mode = "elastic"
        found.fewest = int(value) if name == "min-np" else found.fewest
        found.most = int(value) if name == "max-np" else found.most
    elif name == "x":
        variable, given, said = value.partition("=")
        found.exports.append((variable, said if given else None))
    elif not why:
        found.options += words
    if why:
        found.left_out.append((" ".join(words), why))
    return width


def _why_left_out(name: str, words: Sequence[str]) -> str:
    if name in _COUNT:
        return "the chart works np out from worker.number and worker.slots"
    if name in _HOSTS:
        return "the chart writes the hostfile"
    if name == "allow-run-as-root":
        return "the chart allows it to root images"
    if name in ("p", "ssh-port", "ssh-identity-file"):
        return "the chart's own ssh configuration says it"
    if name in _ELASTIC or name == "slots-per-host":
        return _ELASTIC.get(name, "worker.slots says it")
    if name == "mpi":
        return "that is launch.mode mpirun"
    if name in _TWO:
        return _CHARTS_MCA.get(words[1], "")
    return ""
