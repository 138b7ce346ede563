"""Parses a launcher's command line: mode, options, training command, workers and slots. Pure.

Every option ends in a `Part`, which says where it went, or in an export. The chart's
files/hvd_pods/common/launcher_options.json has the options, and how many arguments follow each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeAlias

from hvd_pods.common import horovodrun
from hvd_pods.common.hostile import parse_count
from hvd_pods.common.launcher_options import LAUNCHER_OPTIONS, find_option, option_name
from hvdchart.migrate.parser import MOST, NotUnderstoodError
from hvdchart.migrate.shell_words import ASSIGNMENT, Statement, Word, read_statements
from hvdchart.spec.paths import KeyPath
from hvdchart.text import join_names

Part: TypeAlias = tuple[str, str, str]
"""Some words of a command line, the chart's key that they became, empty when dropped, and why."""


@dataclass
class CommandLine:
    """A launcher's command line, parsed.

    `launcher` is the program, and `framework` the one that it starts, empty when not known. `ranks`
    is the number of ranks asked for and `per_host` that of each host, None without one; `hosts` are
    the hosts named with their slots. `interfaces` are the options that name network interfaces.
    `min_ranks` and `max_ranks` are the fewest and the most ranks of a run that adapts, and
    `minimum` the fewest workers; `least` are the options that say so. `old` is where the line was
    in a file. `exports` are options such as -x: the option as written, the variable, and the value
    given with it, None without one. `custom_reason` says why a line of mode `custom` was not
    parsed.
    """

    mode: str
    launcher: str = "mpirun"
    framework: str = ""
    options: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    ranks: int | None = None
    exports: list[tuple[str, str, str | None]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    min_ranks: int | None = None
    max_ranks: int | None = None
    minimum: int | None = None
    least: list[str] = field(default_factory=list)
    old: KeyPath = ()
    interfaces: list[tuple[str, list[str]]] = field(default_factory=list)
    custom_reason: str = ""
    per_host: int | None = None
    hosts: tuple[tuple[str, int | None], ...] | None = None
    host_file: str | None = None
    discovery: str | None = None
    # What to check by hand.
    checks: list[str] = field(default_factory=list)
    # What only a shell knows in an option that the chart sets itself, such as -np $NP.
    unknown: str = ""
    # Ranks get all variables of the launcher, as horovodrun and Hydra do it; None: not known.
    exports_all: bool | None = None

    def keep(self, key: str, value: object) -> None:
        """Keep what an option says. Raises NotUnderstoodError when another one differs."""
        before = getattr(self, key)
        if before not in (None, value):
            if key == "hosts":
                raise NotUnderstoodError("two options name different hosts: name all in one -H")
            raise NotUnderstoodError(
                f"two options of the line differ: one says {before}, one {value}"
            )
        setattr(self, key, value)


_CHARTS_MCA = {
    "orte_keep_fqdn_hostnames": "the chart sets it",
    "plm_rsh_agent": "the chart has an `ssh` of its own",
    "plm_rsh_args": "the chart has an `ssh` of its own; the port of its agents is agent.port",
    "plm_rsh_no_tree_spawn": "the chart sets it",
    "plm_rsh_num_concurrent": "the chart sets it",
    "orte_default_hostfile": "the chart writes the host file",
}
_SHELLS = frozenset(("sh", "bash", "dash", "ash"))
_RUN_TEXT = re.compile(r"-[a-z]*c")
LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", horovodrun.NAME)
# Options that say how many ranks each host has.
_PER_HOST = ("npernode", "N", "ppn", "perhost")
# Options that only Intel MPI and MPICH have, beside those of which the table says so.
_HYDRA = ("hosts", "hostlist", "f")
_VARIABLES = ("x", "genv", "genvlist", "genvall", "genvnone")
_IN_EVERY_PATH = ("/bin", "/usr/bin", "/usr/local/bin")
_PPR_NODE = re.compile(r"ppr:([1-9][0-9]{0,6}):node(?::.*)?", re.IGNORECASE)
_RANK_ENVIRONMENT = "every rank has its worker's environment"
_NEEDLESS = {"allow-run-as-root": "the chart allows mpirun to run as root"}
# Options of horovodrun that no line of it may have here, and that are left out: what they say is
# kept as this attribute.
_HOROVODS = {
    **dict.fromkeys(
        ("max-np", "max-num-proc"), ("max_ranks", "worker.number is the most workers of a run")
    ),
    "host-discovery-script": ("discovery", "the master follows its workers itself"),
    "mpi": ("", "launch.mode mpirun is the chart's default"),
}
_NEEDS_SHELL = "the line needs a shell before the launcher starts"
_STARTS_SSHD = re.compile(
    r"(sudo |exec )?((/usr/sbin/)?sshd( \S+)*|service sshd? (re)?start|/etc/init.d/sshd? (re)?start"
    r"|mkdir -p (/var)?/run/sshd)"
)
_WAITS = re.compile(r"sleep ([0-9]+[smhd]?|infinity)|tail -f /dev/null|set [-+]\S+( \S+)?")


def parse_command_line(words: Sequence[str | Word]) -> CommandLine:
    """Parse a command line; mode `custom` and the unchanged words when a part is not understood."""
    texts = [word if isinstance(word, Word) else Word(word) for word in words]
    try:
        return parse_line(texts)
    except NotUnderstoodError as error:
        command = [text.text for text in texts]
        return CommandLine("custom", command=command, custom_reason=str(error))


def parse_line(texts: Sequence[Word]) -> CommandLine:
    """Parse a line of mpirun, its relatives or horovodrun. Raises NotUnderstoodError."""
    before, (first, *rest) = unwrap_shell(texts)
    launcher = PurePosixPath(first.text).name
    if launcher not in LAUNCHERS:
        raise NotUnderstoodError(f"{launcher} is not a launcher that migrate knows")
    is_horovods = launcher == horovodrun.NAME
    line = CommandLine("direct" if is_horovods else "mpirun", launcher, parts=before)
    line.exports_all = True if is_horovods or launcher == "mpiexec.hydra" else None
    known = (launcher, *(f"{path}/{launcher}" for path in _IN_EVERY_PATH))
    if not is_horovods and first.text not in known:
        line.checks.append(
            f"the launcher was {first.text}: here it is the {launcher} that the image's "
            "PATH finds first; check that this is the same"
        )
    while rest and rest[0].text.startswith("-") and rest[0].text != "--":
        width = _parse_horovods(rest, line) if is_horovods else _parse_option(rest, line)
        if width == 0:
            reason = f"migrate does not understand option {rest[0].text} of {launcher}"
            raise NotUnderstoodError(reason)
        rest = rest[width:]
    is_gloo = any(words == "--gloo" for words, _, _ in line.parts)
    if line.mode == "direct" and not (is_gloo or line.min_ranks or line.discovery):
        line.checks.append(
            "horovodrun without --gloo used MPI where Horovod had it, and launch.mode direct is "
            "Horovod over Gloo: for MPI set launch.mode to mpirun"
        )
    if [text.text for text in rest[:1]] == ["--"]:
        line.parts.append(("--", "", "it ends the launcher's options"))
        rest = rest[1:]
    line.command = [text.text for text in rest]
    if any(text.unknown for text in rest):
        raise NotUnderstoodError(_NEEDS_SHELL)
    if not line.command:
        raise NotUnderstoodError(f"the line gives {launcher} no command to run")
    if ":" in line.command:
        raise NotUnderstoodError("the line starts several programs, separated by a colon")
    launchers = set(LAUNCHER_OPTIONS["modes"][line.mode])
    for word in line.options:
        launchers &= set(find_option(word).get("readBy", launchers))
        if not launchers:
            clash = f"no launcher of mode {line.mode} has both {word} and the options before it"
            raise NotUnderstoodError(clash)
    return line


def unwrap_shell(
    words: Sequence[Word], known: Mapping[str, str] | None = None
) -> tuple[list[Part], Sequence[Word]]:
    """What is before the launcher, and its words, with the values of variables that are known.

    Raises NotUnderstoodError.
    """
    text = words[0].text if len(words) == 1 and " " in words[0].text else ""
    if len(words) == 3 and PurePosixPath(words[0].text).name in _SHELLS:
        if not _RUN_TEXT.fullmatch(words[1].text):
            raise NotUnderstoodError(_NEEDS_SHELL)
        text = words[2].text
    if not text and words:
        return [], words
    try:
        *above, last = read_statements(text, known)
    except ValueError:
        # A quote that is not closed, or nothing at all.
        raise NotUnderstoodError(_NEEDS_SHELL) from None
    before = [(statement.raw, "", _reason_to_leave_out(statement)) for statement in above]
    is_simple = last.end in ("\n", ";") and not last.compound and not last.redirects
    starts = bool(last.words) and not last.words[0].unknown
    starts = starts and not ASSIGNMENT.match(last.written[0])
    if not is_simple or not starts or not all(reason for _, _, reason in before):
        raise NotUnderstoodError(_NEEDS_SHELL)
    return before, last.words


def only_starts_sshd(words: Sequence[str]) -> bool:
    """Whether a worker's own command only starts sshd, which the chart needs no more, or waits."""
    is_shell = len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS
    try:
        statements = read_statements(words[2] if is_shell else " ".join(words))
    except ValueError:
        return False
    return all(_reason_to_leave_out(statement) for statement in statements)


def _reason_to_leave_out(statement: Statement) -> str:
    """Why the chart needs no such statement before the launcher; empty when it may need it."""
    if statement.compound or statement.redirects or statement.end in ("|", "&", "||"):
        return ""
    if _STARTS_SSHD.fullmatch(statement.raw):
        return "the chart needs no SSH server"
    if _WAITS.fullmatch(statement.raw):
        return "the master waits for its workers and stops at the first error"
    if all(ASSIGNMENT.match(word) for word in statement.written):
        return "a variable of the shell: only the launcher's line can name it"
    return ""


def _parse_horovods(rest: Sequence[Word], line: CommandLine) -> int:
    """Add the first option of a line of horovodrun; its number of words.

    Raises NotUnderstoodError.
    """
    try:
        option = horovodrun.take_option([text.text for text in rest])
        entry = option.entry
        chart_value = entry.get("value", "")
        width = len(option.words)
        unknown = next((text.unknown for text in rest[:width] if text.unknown), "")
        if unknown and not chart_value:
            raise NotUnderstoodError(f"only a shell knows {unknown}")
        values = [] if unknown else horovodrun.read_values(option)
    except horovodrun.HorovodrunError as error:
        raise NotUnderstoodError(str(error)) from None
    name = option.name.lstrip("-")
    if name in _HOROVODS:
        key, reason = _HOROVODS[name]
        if key.endswith("_ranks"):
            line.keep(key, _count(name, values[0]))
        elif key:
            line.keep(key, values[0])
        else:
            line.mode = "mpirun"
        line.parts.append((str(option), "", reason))
    elif "min-np" in entry["names"]:
        line.keep("min_ranks", _count(name, values[0]))
        line.least.append(str(option))
    elif "network-interface" in entry["names"]:
        line.interfaces.append((str(option), [each for each in values[0].split(",") if each]))
    elif "instead" in entry:
        raise NotUnderstoodError(f"{option} of {horovodrun.NAME}: use {entry['instead']}")
    elif "variable" in entry:
        content = horovodrun.read_content(entry, values)
        _export(line, option.name, entry["variable"], content)
    else:
        if unknown:
            line.unknown = line.unknown or unknown
        else:
            _keep_numbers(name, chart_value, "".join(values[:1]), line)
        line.parts.append((str(option), "", horovodrun.explain_left_out(entry)))
    return width


def _measure(rest: Sequence[Word], arguments: int) -> tuple[int, str]:
    """How many words the first option of `rest` has, 0 where some are missing, and its value."""
    (_, has_value, value) = rest[0].text.partition("=")
    width = 1 if has_value else 1 + arguments
    if len(rest) < width or (has_value and arguments != 1):
        return 0, ""
    return width, value if has_value else "".join(text.text for text in rest[1:width][:1])


def _parse_option(rest: Sequence[Word], line: CommandLine) -> int:
    """Add the first option of `rest` to `line`; its number of words, 0 when not understood."""
    name = option_name(rest[0].text)
    option = find_option(rest[0].text)
    launchers = set(LAUNCHER_OPTIONS["modes"]["mpirun"])
    if not option or not launchers.intersection(option.get("readBy", launchers)):
        return 0
    # -genv NAME=VALUE is -genv NAME VALUE.
    is_pair = name == "genv" and "=" in "".join(text.text for text in rest[1:2])
    width, value = _measure(rest, 1 if is_pair else option["arguments"])
    if not width:
        return 0
    words = [text.text for text in rest[:width]]
    is_hydra = name in _HYDRA or set(option.get("readBy", ("openmpi4",))) <= {"intel", "mpich"}
    if line.exports_all is None and is_hydra:
        line.exports_all = True
    unknown = next((text.unknown for text in rest[:width] if text.unknown), "")
    chart_value = "worker.slots" if name in _PER_HOST else option.get("value", "")
    if unknown and not chart_value:
        return 0
    if name in _VARIABLES:
        _add_variables(name, words, value, line)
        return width
    reason = f"the chart takes it from {chart_value}" if chart_value else _NEEDLESS.get(name, "")
    if name.endswith("mca"):
        reason = _CHARTS_MCA.get(words[1], "")
    if unknown:
        line.unknown = line.unknown or unknown
    else:
        _keep_numbers(name, chart_value, value, line)
    if not reason:
        line.options += words
    new, reason = ("", reason) if reason else ("launch.options", "unchanged")
    line.parts.append((" ".join(words), new, reason))
    return width


def _keep_numbers(name: str, chart_value: str, value: str, line: CommandLine) -> None:
    """Keep the numbers and hosts of an option that the chart sets. Raises NotUnderstoodError."""
    counted = {"worker.slots": "per_host", "worker.number and worker.slots": "ranks"}
    if chart_value in counted:
        line.keep(counted[chart_value], _count(name, value))
    elif name in ("host", "H", "hosts", "hostlist"):
        hosts = [entry.strip().partition(":") for entry in value.split(",") if entry]
        for host, colon, slots in hosts:
            if not host or (colon and not parse_count(slots, MOST)):
                raise NotUnderstoodError(f"{host}{colon}{slots} of -{name} has no number of slots")
        if len({host for host, _, _ in hosts}) < len(hosts):
            raise NotUnderstoodError(f"-{name} {value} gives a host twice")
        line.keep("hosts", tuple((host, parse_count(slots, MOST)) for host, _, slots in hosts))
    elif chart_value == "worker.number":
        line.keep("host_file", value)
    elif name == "pernode":
        line.keep("per_host", 1)
    elif name == "map-by" and (match := _PPR_NODE.fullmatch(value)):
        line.keep("per_host", int(match[1]))


def _count(name: str, value: str) -> int:
    number = parse_count(value, MOST)
    if not number:
        raise NotUnderstoodError(f"-{name} is {value}, and no whole number from 1 on")
    return number


def _add_variables(name: str, words: list[str], value: str, line: CommandLine) -> None:
    """Keep the variables of an option that exports some. Raises NotUnderstoodError."""
    exports: list[tuple[str, str | None]] = []
    if name in ("genvall", "genvnone"):
        line.parts.append((" ".join(words), "", _RANK_ENVIRONMENT))
    elif name == "genvlist":
        exports = [(item, None) for item in value.split(",") if item]
    else:
        variable, equals, given = value.partition("=")
        exports = [(variable, words[2] if len(words) > 2 else given if equals else None)]
    if name not in ("x", "genv"):
        # Each of them says which variables of the launcher the ranks get.
        line.exports_all = name == "genvall"
    for variable, content in exports:
        if not variable:
            raise NotUnderstoodError(f"{' '.join(words)} names no variable")
        _export(line, words[0].partition("=")[0], variable, content)


def _export(line: CommandLine, option: str, variable: str, content: str | None) -> None:
    others = {other for _, known, other in line.exports if known == variable}
    if content is not None and others - {content, None}:
        raise NotUnderstoodError(f"the line sets {variable} to two values")
    line.exports.append((option, variable, content))


_HOSTS = "hosts with their slots, such as -H a:8,b:8"


def workers_and_slots(line: CommandLine) -> tuple[int, int, str]:
    """Workers, slots, what to check; raises ValueError with the problem and what is expected."""
    if line.unknown:
        raise ValueError(f"only a shell knows {line.unknown}", "its value, set above the line")
    return _from_hosts(line, line.hosts) if line.hosts else _without_hosts(line)


def _from_hosts(line: CommandLine, hosts: Sequence[tuple[str, int | None]]) -> tuple[int, int, str]:
    count = len(hosts)
    ranks = line.ranks
    names = join_names(name for name, _ in hosts)
    check = f"the hosts {names} become pods on any nodes: for these nodes set worker.nodeSelector"
    if {name for name, _ in hosts} <= {"localhost", "127.0.0.1"}:
        check = "the ranks ran on one machine: for more nodes change worker.number and worker.slots"
    given = {line.per_host or slots for _, slots in hosts}
    if given == {None} and ranks and ranks % count == 0:
        return count, ranks // count, check
    each = {1 if slots is None else slots for slots in given}
    if len(each) > 1:
        problem = f"the hosts have {' and '.join(str(n) for n in sorted(each))} slots"
        raise ValueError(problem, "one number for all hosts, or workerGroups written by hand")
    (slots,) = each
    ranks = count * slots if ranks is None else ranks
    if ranks > count * slots:
        raise ValueError(f"{ranks} ranks on {count} hosts of {slots} slots", "one rank per slot")
    by_node = any(option in ("node", "--bynode", "-bynode") for option in line.options)
    if ranks < count * slots and (by_node or ranks % min(ranks, slots)):
        problem = f"{ranks} ranks fill {count} hosts of {slots} slots unevenly"
        raise ValueError(problem, "as many ranks on each host, and as many slots")
    used = -(-ranks // slots)
    if used < count:
        check += f". The last {count - used} of the {count} hosts got no ranks, and are left out"
    return used, min(ranks, slots), check


def _without_hosts(line: CommandLine) -> tuple[int, int, str]:
    ranks = line.ranks or line.min_ranks
    per_host = line.per_host
    if ranks and per_host:
        if ranks % min(ranks, per_host):
            raise ValueError(f"{ranks} ranks do not fill hosts of {per_host} slots", "a multiple")
        return -(-ranks // per_host), min(ranks, per_host), ""
    if line.host_file or line.discovery:
        where = f"host file {line.host_file}" if line.host_file else f"script {line.discovery}"
        raise ValueError(f"only the {where} knows the hosts", f"in its place {_HOSTS}")
    if not ranks and not per_host:
        raise ValueError("the line does not say how many ranks it starts", f"-np N, or {_HOSTS}")
    check = f"the line names no hosts: one worker has all {ranks} slots; for more nodes change "
    if ranks:
        return 1, ranks, f"{check}worker.number and worker.slots"
    return 1, per_host or 1, "the line names no hosts: set worker.number"
